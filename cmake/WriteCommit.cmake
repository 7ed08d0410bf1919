# SPDX-License-Identifier: Apache-2.0
# cmake -DGIT=... -DSOURCES=DIR -DHEADER=FILE -P: writes a header that names the commit of DIR, if there is one; leaves it
# alone where it does already.
set(commit)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCES} describe --always --dirty --tags
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define ONEHOP_COMMIT \"${commit}\"\n" @ONLY)
