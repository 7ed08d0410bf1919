# SPDX-License-Identifier: Apache-2.0
# onehop_layer(<name> [CUDA] SOURCES ... [TESTS ...] [LIBS ...] [TEST_LIBS ...])
#   Compiles one layer into the object library onehop_<name>. All layers together make libonehop; the tests of
#   a layer (which stand beside its sources) make the program <name>_test. LIBS are what its sources include,
#   TEST_LIBS what its tests need besides. CUDA: its sources see the driver's types, if this build has a CUDA backend.
function(onehop_layer name)
  cmake_parse_arguments(arg "CUDA" "" "SOURCES;TESTS;LIBS;TEST_LIBS" ${ARGN})
  if(arg_CUDA)
    list(APPEND arg_LIBS $<TARGET_NAME_IF_EXISTS:onehop_cuda_headers>)
  endif()
  add_library(onehop_${name} OBJECT ${arg_SOURCES})
  target_include_directories(onehop_${name} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(onehop_${name} PRIVATE onehop_options fmt::fmt Threads::Threads ${arg_LIBS})
  onehop_guide_fuzzers(onehop_${name})
  set_property(GLOBAL APPEND PROPERTY ONEHOP_LAYERS onehop_${name})
  if(ONEHOP_BUILD_TESTS AND arg_TESTS)
    onehop_test(${name}_test SOURCES ${arg_TESTS} LIBS ${arg_LIBS} ${arg_TEST_LIBS} LABELS unit)
  endif()
endfunction()

# onehop_guide_fuzzers(<target>)
#   Code that fuzzers explore: it tells them which branches an input takes.
function(onehop_guide_fuzzers target)
  if(ONEHOP_BUILD_FUZZERS)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link>)
  endif()
endfunction()

# onehop_compile_quickly(<target>)
#   What is tested is the library; its tests take half as long to compile with less optimization. What is built for other
#   machines runs where time is dearer than here: on GPUs.
function(onehop_compile_quickly target)
  if(ONEHOP_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  elseif(NOT ONEHOP_PORTABLE)
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

# onehop_test(<target> SOURCES ... [LIBS ...] [LABELS ...] [TIMEOUT seconds] [SERIAL])
#   A GoogleTest program over the static library (so that it sees internals); every TEST is a ctest test, by the name that
#   --gtest_filter takes. Parameters are named where tests are instantiated: ctest's own way would show their bytes.
#   SERIAL tests never run beside others: those that count on having the machine's cores.
function(onehop_test target)
  cmake_parse_arguments(arg "SERIAL" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${target} ${arg_SOURCES})
  onehop_compile_quickly(${target})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE onehop_options onehop_static fmt::fmt GTest::gmock GTest::gtest_main
    $<TARGET_NAME_IF_EXISTS:onehop_cuda_headers> ${arg_LIBS})
  if("cuda" IN_LIST arg_LABELS)
    set_property(GLOBAL APPEND PROPERTY ONEHOP_CUDA_PROGRAMS ${target})
  endif()
  set(properties LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
  if(arg_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES PROPERTIES ${properties})
  if("cuda" IN_LIST arg_LABELS)
    onehop_take_discovered_gpu_tests()
  endif()
endfunction()

# onehop_fuzzer(<name> SOURCES ... [LIBS ...])
#   A libFuzzer target (LLVMFuzzerTestOneInput). Its seeds are those that it makes (fuzz::seeds), and with past findings the
#   files in tests/fuzz/corpus/<name>/accepted and refused. With ONEHOP_BUILD_FUZZERS it is a fuzzer, which scripts/fuzz.sh runs.
#   In other builds with tests the same source is a test that replays them, so that no finding comes back unnoticed and no
#   seed becomes outdated.
function(onehop_fuzzer name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  set(target ${name}_fuzz)
  set(corpus ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
  add_executable(${target} ${arg_SOURCES})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests/fuzz)
  target_link_libraries(${target} PRIVATE onehop_options onehop_static fmt::fmt ${arg_LIBS})
  if(ONEHOP_BUILD_FUZZERS)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/write_seeds.cc)
    onehop_guide_fuzzers(${target})
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    set_property(GLOBAL APPEND PROPERTY ONEHOP_FUZZERS "${name} $<TARGET_FILE:${target}> ${corpus}")
  else()
    onehop_compile_quickly(${target})
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cc)
    add_test(NAME fuzz_replay.${name} COMMAND ${target} ${corpus})
    set_tests_properties(fuzz_replay.${name} PROPERTIES LABELS fuzz TIMEOUT 120)
  endif()
endfunction()
