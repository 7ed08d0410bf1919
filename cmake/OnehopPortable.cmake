# SPDX-License-Identifier: Apache-2.0
# ONEHOP_PORTABLE: programs that run where only glibc and the C++ runtime are installed, such as a machine with GPUs that
# builds nothing. All of them lie in one folder, <build>/bin, stripped, with the shared libraries that they bring.
# The usual targets, from other sources: fmt and spdlog as headers.
find_path(ONEHOP_FMT_INCLUDE fmt/format-inl.h REQUIRED)
find_path(ONEHOP_SPDLOG_INCLUDE spdlog/spdlog-inl.h REQUIRED)
add_library(fmt::fmt INTERFACE IMPORTED)
target_include_directories(fmt::fmt INTERFACE ${ONEHOP_FMT_INCLUDE})
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)
add_library(spdlog::spdlog INTERFACE IMPORTED)
target_include_directories(spdlog::spdlog INTERFACE ${ONEHOP_SPDLOG_INCLUDE})
target_compile_definitions(spdlog::spdlog INTERFACE SPDLOG_FMT_EXTERNAL)
target_link_libraries(spdlog::spdlog INTERFACE fmt::fmt Threads::Threads)

# Debian's archive of hwloc is not position-independent code, so no shared library can take it in: the shared one is
# brought along, with libudev, which it asks about disks and few machines lack. The build tree has each under its soname.
pkg_check_modules(hwloc REQUIRED hwloc)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
file(MAKE_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
foreach(library libhwloc.so.15 libudev.so.1)
  find_library(ONEHOP_BROUGHT_${library} ${library} REQUIRED)
  file(REAL_PATH ${ONEHOP_BROUGHT_${library}} path)
  configure_file(${path} ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${library} COPYONLY)
endforeach()
add_library(PkgConfig::hwloc INTERFACE IMPORTED)
target_include_directories(PkgConfig::hwloc INTERFACE ${hwloc_INCLUDE_DIRS})
target_link_libraries(PkgConfig::hwloc INTERFACE ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/libhwloc.so.15)
# The libraries lie beside each other: with DT_RPATH the program's folder also serves what its libraries need.
set(CMAKE_BUILD_RPATH "$ORIGIN")
add_link_options(-Wl,--strip-all -Wl,--disable-new-dtags)
