#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Used by the test of 07_survive_dead_rank.cc. Runs a job of four ranks, of which rank 3 kills itself. Checks that the
# others went on, and that the launcher's exit code is that of the kill. Ends within a minute even if something hangs.
output=$(timeout -k 5 50 "$@" 2>&1)
code=$?
echo "$output"
for rank in 0 1 2; do
  case "$output" in
    *"rank $rank is rank $rank of 3 now; the sums are right"*) ;;
    *)
      echo "rank $rank did not go on with the others" >&2
      exit 1
      ;;
  esac
done
if [ "$code" -ne 137 ]; then
  echo "the exit code is $code and not 137, that of SIGKILL" >&2
  exit 1
fi
