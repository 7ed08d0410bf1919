# SPDX-License-Identifier: Apache-2.0
# ONEHOP_PORTABLE: programs that run where only glibc and the C++ runtime are installed, such as a machine with GPUs that
# builds nothing. All of them lie in one folder, <build>/bin, stripped, with the one shared library they bring.
# The usual targets, from other sources: fmt and spdlog as headers, hwloc as an archive.
find_path(ONEHOP_FMT_INCLUDE fmt/format-inl.h REQUIRED)
find_path(ONEHOP_SPDLOG_INCLUDE spdlog/spdlog-inl.h REQUIRED)
add_library(fmt::fmt INTERFACE IMPORTED)
target_include_directories(fmt::fmt INTERFACE ${ONEHOP_FMT_INCLUDE})
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)
add_library(spdlog::spdlog INTERFACE IMPORTED)
target_include_directories(spdlog::spdlog INTERFACE ${ONEHOP_SPDLOG_INCLUDE})
target_compile_definitions(spdlog::spdlog INTERFACE SPDLOG_FMT_EXTERNAL)
target_link_libraries(spdlog::spdlog INTERFACE fmt::fmt Threads::Threads)

# hwloc asks udev about disks. There is no archive of libudev, and few machines lack the library: it is brought along.
pkg_check_modules(hwloc REQUIRED hwloc)
find_library(ONEHOP_HWLOC_ARCHIVE libhwloc.a REQUIRED)
find_library(ONEHOP_UDEV_LIBRARY libudev.so.1 REQUIRED)
add_library(PkgConfig::hwloc INTERFACE IMPORTED)
target_include_directories(PkgConfig::hwloc INTERFACE ${hwloc_INCLUDE_DIRS})
target_link_libraries(PkgConfig::hwloc INTERFACE ${ONEHOP_HWLOC_ARCHIVE} ${ONEHOP_UDEV_LIBRARY} m)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_BUILD_RPATH "$ORIGIN")
add_link_options(-Wl,--strip-all)
file(REAL_PATH ${ONEHOP_UDEV_LIBRARY} library)
file(MAKE_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
configure_file(${library} ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/libudev.so.1 COPYONLY)
