#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Used by the tests of 21_c_dead_rank.c and 22_ctypes.py. Runs a job of two ranks, of which rank 1 kills
# itself. Checks that rank 0 got the error in time, and that the launcher's exit code is that of the kill.
# Ends within a minute even if something hangs.
output=$(timeout -k 5 50 "$@" 2>&1)
code=$?
echo "$output"
case "$output" in
  "skipped: "*) exit 0 ;;
  *"rank 0: rank 1 is lost: "*) ;;
  *)
    echo "rank 0 was not told that rank 1 is lost" >&2
    exit 1
    ;;
esac
if [ "$code" -ne 137 ]; then
  echo "the exit code is $code and not 137, that of SIGKILL" >&2
  exit 1
fi
