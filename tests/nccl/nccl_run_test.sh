#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# nccl_run_test.sh COMMAND LIBRARY: onehop nccl-run becomes the program, with LIBRARY in NCCL's place.
set -euo pipefail

# As in the Python package: the library is in the folder above the command's. The build's own folder may have a space in its
# name, which LD_PRELOAD cannot hold.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"
cp "$1" "$folder/bin/"
cp "$2" "$folder/"
command=$folder/bin/onehop
library=$folder/libonehop_nccl.so
unset ONEHOP_NCCL VLLM_NCCL_SO_PATH
fail() {
  echo "nccl_run_test: $*" >&2
  exit 1
}
# expect CODE PATTERN ARGUMENT...: what `onehop nccl-run ARGUMENT...` prints, on either output, and its exit code
expect() {
  local wanted=$1 pattern=$2 code=0 said
  shift 2
  said=$("$command" nccl-run "$@" 2>&1) || code=$?
  # shellcheck disable=SC2053 # a pattern
  [[ $code == "$wanted" && $said == $pattern ]] || fail "'nccl-run $*' exited $code and said: $said"
}

# shellcheck disable=SC2016 # the program's variables
{
  expect 3 "onehop: $library is in NCCL's place; ONEHOP_LOG=info *$library:libm.so.6" -- sh -c 'echo $LD_PRELOAD:libm.so.6; exit 3'
  LD_PRELOAD=libm.so.6 expect 0 "*$library:libm.so.6" -- sh -c 'grep -q libonehop_nccl /proc/self/maps && echo $LD_PRELOAD'
  expect 0 "*off $library" --mode off -- sh -c 'echo $ONEHOP_NCCL $VLLM_NCCL_SO_PATH'
  ONEHOP_NCCL=off expect 0 "*off" -- sh -c 'echo $ONEHOP_NCCL'
  ONEHOP_NCCL=off expect 0 "*unset" --mode auto -- sh -c 'echo ${ONEHOP_NCCL-unset}'
  VLLM_NCCL_SO_PATH=chosen expect 0 "*chosen" -- sh -c 'echo $ONEHOP_NCCL $VLLM_NCCL_SO_PATH'
}
expect 127 "*onehop: cannot run './nonexistent': No such file*" -- ./nonexistent
expect 126 "*onehop: cannot run '/': Permission denied*" -- /

# In a folder whose name LD_PRELOAD could not hold.
mkdir -p "$folder/a b/bin"
cp "$command" "$folder/a b/bin/"
command="$folder/a b/bin/onehop"
expect 1 "onehop: libonehop_nccl.so is not installed beside this command: install the package onehop-nccl" -- true
cp "$library" "$folder/a b/"
expect 0 "*1" -- grep -c -m 1 'a b/libonehop_nccl.so' /proc/self/maps
