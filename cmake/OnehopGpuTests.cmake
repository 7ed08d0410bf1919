# SPDX-License-Identifier: Apache-2.0
# Tests that need GPUs, as ctest lists them. Where there is none, all of them are one entry, which says so: hundreds of
# skipped tests would hide the one that was skipped for another reason. ctest decides when it starts, so that a build made
# without GPUs serves a machine that has some.
#   ONEHOP_GPU_TESTS=all  lists every one wherever it runs (scripts/gpu_tests.py packs them on machines without GPUs)
#   ONEHOP_GPU_TESTS=none lists the one entry even where there are GPUs

# onehop_gpu_test(<name> COMMAND ... LABELS ... TIMEOUT seconds [SERIAL])
#   A program that is one test. It prints a line that begins with "skipped: " when GPUs are too few. The command may use
#   generator expressions and names no targets.
function(onehop_gpu_test name)
  cmake_parse_arguments(arg "SERIAL" "TIMEOUT" "COMMAND;LABELS" ${ARGN})
  set(command)
  foreach(argument IN LISTS arg_COMMAND)
    string(APPEND command " [==[${argument}]==]")
  endforeach()
  set(properties "LABELS \"${arg_LABELS}\" TIMEOUT ${arg_TIMEOUT} SKIP_REGULAR_EXPRESSION \"^skipped: \"")
  if(arg_SERIAL)
    string(APPEND properties " RUN_SERIAL TRUE")
  endif()
  set_property(GLOBAL APPEND_STRING PROPERTY ONEHOP_GPU_TEST_SCRIPT
    "  add_test([==[${name}]==]${command})\n  set_tests_properties([==[${name}]==] PROPERTIES ${properties})\n")
endfunction()

# Takes over what gtest_discover_tests() has just added to this directory.
function(onehop_take_discovered_gpu_tests)
  get_property(files DIRECTORY PROPERTY TEST_INCLUDE_FILES)
  list(POP_BACK files file)
  set_property(DIRECTORY PROPERTY TEST_INCLUDE_FILES "${files}")
  set_property(GLOBAL APPEND_STRING PROPERTY ONEHOP_GPU_TEST_SCRIPT "  include([==[${file}]==])\n")
endfunction()

# Called once, after the last of the above.
function(onehop_list_gpu_tests)
  get_property(script GLOBAL PROPERTY ONEHOP_GPU_TEST_SCRIPT)
  set(file ${CMAKE_CURRENT_BINARY_DIR}/gpu_tests.cmake)
  string(CONFIGURE [[
set(listed "$ENV{ONEHOP_GPU_TESTS}")
if(listed STREQUAL "")
  file(GLOB devices /dev/nvidia[0-9]*)
  if(devices)
    set(listed all)
  endif()
endif()
if(listed STREQUAL "all")
@script@else()
  add_test(gpu_tests [==[@CMAKE_COMMAND@]==] -E echo
    "skipped: there is no GPU here (/dev/nvidia0), so no GPU test is listed; ONEHOP_GPU_TESTS=all lists them")
  set_tests_properties(gpu_tests PROPERTIES LABELS cuda SKIP_REGULAR_EXPRESSION "^skipped: ")
endif()
]] content @ONLY)
  file(GENERATE OUTPUT ${file} CONTENT "${content}")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()
