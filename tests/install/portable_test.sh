#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# portable_test.sh SOURCE_DIR WORK_DIR: builds with ONEHOP_PORTABLE, moves the programs to another folder and checks that
# they start there with nothing but glibc and the C++ runtime of the system. Without kernels and optimization, which change
# nothing about that.
set -euo pipefail

source=$1
work=$2
fail() {
  echo "portable_test: $*" >&2
  exit 1
}
rm -rf "$work/moved" "$work/build/bin"
mkdir -p "$work"
build() {
  "$CMAKE" -S "$source" --preset portable -B "$work/build" -G "$CMAKE_GENERATOR" -DONEHOP_CUDA=OFF -DONEHOP_BUILD_TESTS=OFF \
    -DONEHOP_BUILD_EXAMPLES=OFF -DONEHOP_BUILD_BENCH=OFF -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 &&
    "$CMAKE" --build "$work/build" --target onehop_command onehop_shared
}
build > "$work/build.log" 2>&1 || fail "$(tail -n 30 "$work/build.log")"
mv "$work/build/bin" "$work/moved"
cp -P "$work"/build/src/libonehop.so* "$work/moved"

for file in "$work/moved/onehop" "$work"/moved/libonehop.so; do
  needed=$(env -i ldd "$file") || fail "ldd $file: $needed"
  [[ $needed == *"$work/moved/libhwloc.so"* && $needed == *"$work/moved/libudev.so"* && $needed == *"$work/moved/libfmt.so"* ]] ||
    fail "$file does not find the libraries beside it: $needed"
  others=$(grep -Ev "linux-vdso|ld-linux|$work/moved/|/lib(c|m|stdc\+\+|gcc_s)\.so" <<< "$needed" || true)
  [[ -z $others ]] || fail "$file needs more than glibc and the C++ runtime: $others"
done
env -i "$work/moved/onehop" bench all-reduce --device host --ranks 2 --sizes 1K --iters 3 > "$work/bench.log" 2>&1 ||
  fail "$(cat "$work/bench.log")"
