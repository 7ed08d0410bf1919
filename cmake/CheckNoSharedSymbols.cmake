# SPDX-License-Identifier: Apache-2.0
# cmake -DNM=... -DOBJECTS=a.o;b.o -P: fails when one of the objects defines a symbol that another translation unit
# may define too (weak, vague linkage). The linker would keep either, and either may use instructions that the CPU lacks.
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${NM} --defined-only ${object} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]* [WVu] [^\n]*" shared "${symbols}")
  if(shared)
    message(FATAL_ERROR "${object} defines ${shared}: see the rule in src/backend/host/reduce_kernels.h")
  endif()
endforeach()
