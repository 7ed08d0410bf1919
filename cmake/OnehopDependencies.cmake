# Third-party libraries, all from the distribution. scripts/install-deps.sh is the one list of packages.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)

if(ONEHOP_BUILD_TOOLS)
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
