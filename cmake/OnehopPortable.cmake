# SPDX-License-Identifier: Apache-2.0
# ONEHOP_PORTABLE: programs that run where only glibc and the C++ runtime are installed, such as a machine with GPUs that
# builds nothing. All of them lie in one folder, <build>/bin, stripped, with the shared libraries that they bring. They are
# compiled like all others, so that the compiler cache has their objects.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
file(MAKE_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
function(onehop_bring library soname)
  file(REAL_PATH ${library} path)
  configure_file(${path} ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${soname} COPYONLY)
endfunction()
foreach(package fmt spdlog)
  get_target_property(configurations ${package}::${package} IMPORTED_CONFIGURATIONS)
  list(GET configurations 0 configuration)
  get_target_property(library ${package}::${package} IMPORTED_LOCATION_${configuration})
  get_target_property(soname ${package}::${package} IMPORTED_SONAME_${configuration})
  onehop_bring(${library} ${soname})
endforeach()
# hwloc asks libudev about disks. Few machines have it.
foreach(soname libhwloc.so.15 libudev.so.1)
  find_library(ONEHOP_BROUGHT_${soname} ${soname} REQUIRED)
  onehop_bring(${ONEHOP_BROUGHT_${soname}} ${soname})
endforeach()
# The libraries lie beside each other: with DT_RPATH the program's folder also serves what its libraries need.
set(CMAKE_BUILD_RPATH "$ORIGIN")
add_link_options(-Wl,--strip-all -Wl,--disable-new-dtags)
