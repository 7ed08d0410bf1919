# SPDX-License-Identifier: Apache-2.0
# Warnings, sanitizers and the compiler cache: one interface target that everything of ours links.
add_library(onehop_options INTERFACE)
target_compile_options(onehop_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Wold-style-cast
    -Woverloaded-virtual -Werror>
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-sign-conversion>  # -Wconversion of GCC leaves it out in C++
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wpedantic -Werror>)
# Where multiply-and-add is one instruction, GCC makes one of two operations: it rounds once instead of twice. Results,
# and those that tests compare them with, must not depend on the processor. (x86-64 has none unless asked for.)
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  target_compile_options(onehop_options INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>)
endif()
# Files that are compiled as one see each other's names. With much to inline, GCC 12 warns of overlapping copies in
# operator+ of std::string (its bug 105651).
if(CMAKE_UNITY_BUILD)
  target_compile_options(onehop_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-shadow>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage $<$<CONFIG:Release>:-Wno-restrict>>)
endif()
if(ONEHOP_SANITIZE)
  target_compile_options(onehop_options INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${ONEHOP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1>)
  target_link_options(onehop_options INTERFACE -fsanitize=${ONEHOP_SANITIZE})
endif()
if(ONEHOP_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "ONEHOP_BUILD_FUZZERS needs clang (libFuzzer); use the preset 'asan-ubsan'")
  endif()
endif()

find_program(ONEHOP_CCACHE ccache)
if(ONEHOP_CCACHE AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_C_COMPILER_LAUNCHER ${ONEHOP_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ONEHOP_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${ONEHOP_CCACHE})
endif()
