# SPDX-License-Identifier: Apache-2.0
# include/onehop/version.h states the version once more, for code that is compiled without CMake. A mismatch would let
# ranks of different releases form a group, so it is an error here and not a surprise there.
set(onehop_version_header ${PROJECT_SOURCE_DIR}/include/onehop/version.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${onehop_version_header})
file(READ ${onehop_version_header} onehop_version_text)
foreach(part MAJOR MINOR PATCH)
  if(NOT onehop_version_text MATCHES "#define ONEHOP_VERSION_${part} ${PROJECT_VERSION_${part}}\n")
    message(FATAL_ERROR "include/onehop/version.h: ONEHOP_VERSION_${part} is not ${PROJECT_VERSION_${part}}, "
      "as project(VERSION ${PROJECT_VERSION}) in CMakeLists.txt says; change both together")
  endif()
endforeach()
if(NOT onehop_version_text MATCHES "#define ONEHOP_VERSION_STRING \"${PROJECT_VERSION}\"\n")
  message(FATAL_ERROR "include/onehop/version.h: ONEHOP_VERSION_STRING is not \"${PROJECT_VERSION}\", "
    "as project(VERSION ${PROJECT_VERSION}) in CMakeLists.txt says; change both together")
endif()

file(READ ${PROJECT_SOURCE_DIR}/CITATION.cff onehop_citation)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/CITATION.cff)
if(NOT onehop_citation MATCHES "\nversion: ${PROJECT_VERSION}\n")
  message(FATAL_ERROR "CITATION.cff: the version is not ${PROJECT_VERSION}, as project() in CMakeLists.txt says; change both together")
endif()

# The version of the interface, which is part of the library's name. Before 1.0 a minor version may break.
set(onehop_abi ${PROJECT_VERSION_MAJOR})
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(onehop_abi 0.${PROJECT_VERSION_MINOR})
endif()
