#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# preload_test.sh LIBRARY FAKE_NCCL PROGRAM: LD_PRELOAD puts LIBRARY in the place of the libnccl.so.2 that PROGRAM was linked
# with, and loads no NCCL into a process that does not use it.
set -euo pipefail

# In a folder without a space in its name, which LD_PRELOAD cannot hold.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$1" "$folder/libonehop_nccl.so"
library=$folder/libonehop_nccl.so
export ONEHOP_NCCL_LIBRARY=$2
program=$3
fail() {
  echo "preload_test: $*" >&2
  exit 1
}

maps=$(LD_PRELOAD=$library cat /proc/self/maps)
grep -qF "$library" <<< "$maps" || fail "LD_PRELOAD did not load $library"
if grep -F "$ONEHOP_NCCL_LIBRARY" <<< "$maps"; then fail "a process that does not use NCCL loaded $ONEHOP_NCCL_LIBRARY"; fi

# Every name must be there when the program starts, not only when it is called.
said=$(LD_PRELOAD=$library LD_BIND_NOW=1 NCCL_DEBUG=INFO "$program" 2>&1) || fail "the program: $said"
[[ $said == *"forwarding others to $ONEHOP_NCCL_LIBRARY (2.28.9)"* && $said == *"version 22809"* ]] || fail "the program said: $said"
said=$(env -u ONEHOP_NCCL_LIBRARY LD_PRELOAD="$library" "$program" 2>&1) || fail "without a named library, the program: $said"
[[ $said == "version 22703" ]] || fail "the NCCL in the program's RPATH was not found: $said"
said=$("$program") || fail "the program by itself: $said"
[[ $said == "version 22703" ]] || fail "by itself, the program said: $said"
