# SPDX-License-Identifier: Apache-2.0
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
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 is older than the first nvcc that knows C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(ONEHOP_HAVE_CUDA ON)

# The driver's types; its functions are found when the program runs (src/driver/cuda_driver.h). Examples and tests that
# are CUDA programs themselves link the runtime, statically.
find_package(CUDAToolkit REQUIRED)
add_library(onehop_cuda_headers INTERFACE)
target_include_directories(onehop_cuda_headers SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})

# onehop_device_code(<layer> <source.cu>...)
#   Compiles kernels and embeds them in the layer as data: the fat binary of `x.cu` is the array onehop_code_x, which
#   src/driver/module.h loads. No host code comes from nvcc, and nothing needs the CUDA runtime.
enable_language(ASM)
set(onehop_gencode)
foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
  if(NOT architecture MATCHES "^([0-9]+a?)(-real|-virtual)?$")
    message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES: '${architecture}' must be a number such as 90, 90-real or 90-virtual")
  endif()
  set(number ${CMAKE_MATCH_1})
  if(NOT CMAKE_MATCH_2 STREQUAL "-virtual")
    list(APPEND onehop_gencode -gencode arch=compute_${number},code=sm_${number})
  endif()
  if(NOT CMAKE_MATCH_2 STREQUAL "-real")
    list(APPEND onehop_gencode -gencode arch=compute_${number},code=compute_${number})
  endif()
endforeach()
function(onehop_device_code layer)
  foreach(source IN LISTS ARGN)
    cmake_path(GET source STEM name)
    cmake_path(ABSOLUTE_PATH source)
    set(fatbin ${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin)
    # nvcc escapes the sources in a list of dependencies, but not the target: with a space in its path no build would
    # ever be complete.
    string(REPLACE " " "\\ " target "${fatbin}")
    add_custom_command(OUTPUT ${fatbin}
      COMMAND ${CMAKE_CUDA_COMPILER} -fatbin -std=c++20 -O3 $<$<CONFIG:Debug>:-lineinfo> --compress-mode=size --expt-relaxed-constexpr --Werror all-warnings ${onehop_gencode}
        -I ${PROJECT_SOURCE_DIR}/include -I ${PROJECT_SOURCE_DIR}/src -MD -MF ${fatbin}.d -MT ${target}
        -o ${fatbin} ${source}
      DEPENDS ${source} DEPFILE ${fatbin}.d VERBATIM COMMAND_EXPAND_LISTS
      COMMENT "Compiling kernels of ${name}.cu")
    set(assembly ${CMAKE_CURRENT_BINARY_DIR}/${name}_code.S)
    file(CONFIGURE OUTPUT ${assembly} @ONLY CONTENT [[
    .section .rodata
    .balign 64
    .global onehop_code_@name@
    .hidden onehop_code_@name@
onehop_code_@name@:
    .incbin "@fatbin@"
    .section .note.GNU-stack,"",%progbits
]])
    set_source_files_properties(${assembly} PROPERTIES OBJECT_DEPENDS ${fatbin})
    target_sources(onehop_${layer} PRIVATE ${assembly})
  endforeach()
endfunction()

list(JOIN CMAKE_CUDA_ARCHITECTURES " " onehop_cuda_architectures)
message(STATUS "onehop: CUDA backend on (${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${onehop_cuda_architectures})")
