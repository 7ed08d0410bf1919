# Decides ONEHOP_HAVE_CUDA from ONEHOP_CUDA (AUTO, ON, OFF) and enables the language. Everything else asks only
# ONEHOP_HAVE_CUDA. Nothing here runs a GPU: a toolkit without a device builds all kernels.
if(NOT ONEHOP_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "ONEHOP_CUDA='${ONEHOP_CUDA}' must be AUTO, ON or OFF")
endif()

set(ONEHOP_HAVE_CUDA OFF)
if(ONEHOP_CUDA STREQUAL "OFF")
  message(STATUS "onehop: CUDA backend off (ONEHOP_CUDA=OFF)")
  return()
endif()

# A sanitizer of the host compiler cannot follow nvcc's host code, and the device has its own (compute-sanitizer).
if(ONEHOP_SANITIZE AND ONEHOP_CUDA STREQUAL "AUTO")
  message(STATUS "onehop: CUDA backend off (sanitizers cover the host code; ONEHOP_CUDA=ON overrides)")
  return()
endif()

# The toolkit's own installer puts nvcc where no PATH leads.
find_program(ONEHOP_NVCC nvcc HINTS ENV CUDAToolkit_ROOT ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT ONEHOP_NVCC AND NOT CMAKE_CUDA_COMPILER)
  if(ONEHOP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ONEHOP_CUDA=ON, but no CUDA toolkit was found: put nvcc on PATH, set CUDA_HOME, "
      "or configure with -DONEHOP_CUDA=AUTO to build without it")
  endif()
  message(STATUS "onehop: CUDA backend off (no nvcc; the host backend needs none)")
  return()
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  set(ENV{CUDACXX} ${ONEHOP_NVCC})
endif()

# Real code for A100 and H100/H200, PTX for whatever comes after them.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
# Static, so that one binary starts on machines without CUDA. This is CMake's default; it is stated because
# promises (and a test that reads the dynamic section) hang on it.
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(ONEHOP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ONEHOP_CUDA=ON, but ${ONEHOP_NVCC} cannot compile with this host compiler; "
      "see CMakeFiles/CMakeError.log in the build directory")
  endif()
  message(STATUS "onehop: CUDA backend off (${ONEHOP_NVCC} does not work with this host compiler)")
  return()
endif()
enable_language(CUDA)
# Only now: CMake does not know what the compiler can do before it has identified it.
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(ONEHOP_HAVE_CUDA ON)
list(JOIN CMAKE_CUDA_ARCHITECTURES " " onehop_cuda_architectures)
message(STATUS "onehop: CUDA backend on (${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${onehop_cuda_architectures})")
