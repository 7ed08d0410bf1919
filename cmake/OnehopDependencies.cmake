# SPDX-License-Identifier: Apache-2.0
# Third-party libraries, all from the distribution. scripts/install-deps.sh is the one list of packages.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
if(ONEHOP_PORTABLE)
  include(OnehopPortable)
endif()
find_package(nlohmann_json 3.11 REQUIRED)

if(ONEHOP_BUILD_TOOLS OR ONEHOP_BUILD_TESTS OR ONEHOP_BUILD_FUZZERS)
  find_package(CLI11 2.1 REQUIRED)
endif()
if(ONEHOP_BUILD_TESTS)
  find_package(GTest 1.12 REQUIRED)
  include(GoogleTest)
  enable_testing()
endif()

# Asio is header-only and ships no CMake package in Debian.
find_path(ONEHOP_ASIO_INCLUDE asio.hpp REQUIRED)
add_library(onehop_asio INTERFACE)
target_include_directories(onehop_asio SYSTEM INTERFACE ${ONEHOP_ASIO_INCLUDE})
target_compile_definitions(onehop_asio INTERFACE ASIO_STANDALONE ASIO_NO_DEPRECATED)
target_link_libraries(onehop_asio INTERFACE Threads::Threads)

# NVTX3 is header-only and part of every CUDA toolkit; the host backend alone has it where the headers happen to be.
if(ONEHOP_NVTX)
  find_path(ONEHOP_NVTX_INCLUDE nvtx3/nvToolsExt.h
    HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDAToolkit_ROOT ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
  if(ONEHOP_NVTX_INCLUDE)
    # A directory with that header alone: beside it a toolkit has all of CUDA, which the host's sources must not see.
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/nvtx)
    file(CREATE_LINK ${ONEHOP_NVTX_INCLUDE}/nvtx3 ${PROJECT_BINARY_DIR}/nvtx/nvtx3 COPY_ON_ERROR SYMBOLIC)
    add_library(onehop_nvtx INTERFACE)
    target_include_directories(onehop_nvtx SYSTEM INTERFACE ${PROJECT_BINARY_DIR}/nvtx)
    target_compile_definitions(onehop_nvtx INTERFACE ONEHOP_HAVE_NVTX=1)
    message(STATUS "onehop: NVTX ranges on (${ONEHOP_NVTX_INCLUDE})")
  else()
    message(STATUS "onehop: NVTX ranges off (no nvtx3/nvToolsExt.h)")
  endif()
endif()
