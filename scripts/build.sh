#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures and builds one CMake preset:
#   scripts/build.sh PRESET [-DNAME=VALUE...] [TARGET...]
#   CPU_MINUTES=N scripts/build.sh ...     what the build takes on one core, to say beforehand how long it will be
# The preset `native` builds for this machine alone: with kernels only where a GPU is (scripts/cuda-options.sh).
# Configuration output is shown only when it fails. On a terminal ninja shows its progress in one line; in a pipe, a line
# appears every 15 s.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
options=()
targets=()
for argument; do
  if [[ $argument == -D* ]]; then options+=("$argument"); else targets+=("$argument"); fi
done
if [[ $preset == native ]]; then
  native=$(scripts/cuda-options.sh)
  mapfile -t -O "${#options[@]}" options <<< "$native"
fi
# `auto` is CMake's own default: kernels where a compiler is.
[[ $preset != release || ${CUDA:-auto} != on ]] || options+=(-DONEHOP_CUDA=ON)
[[ $preset != release || ${CUDA:-auto} != off ]] || options+=(-DONEHOP_CUDA=OFF)
jobs=${JOBS:-$(nproc)}

mkdir -p build
log=build/$preset.configure.log
if ! cmake --preset "$preset" "${options[@]}" > "$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
grep '^-- onehop:' "$log" || true
# After a build of something else, such as the command alone, it takes less.
all=build/$preset/.built
built=$all${targets:+-${targets[*]}}
[[ -e $all || -e $built || -z ${CPU_MINUTES-} ]] ||
  echo "-- onehop: building takes about $((CPU_MINUTES / jobs + 1)) min with $jobs jobs, the first time"

build=(cmake --build --preset "$preset" -j "$jobs")
((${#targets[@]} == 0)) || build+=(--target "${targets[@]}")
if [[ -t 1 ]]; then
  "${build[@]}"
  touch "$built"
  exit
fi

# Into a pipe ninja would print a line per file: keep them for the failure.
log=build/$preset.build.log
: > "$log"
said=$SECONDS
if ! "${build[@]}" 2>&1 | while true; do
  # A line may come in parts, when the second is over before its end.
  if IFS= read -r -t 1 line; then
    printf '%s\n' "$line" >> "$log"
    [[ ! $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || step="${BASH_REMATCH[1]} of ${BASH_REMATCH[2]} steps"
  else
    (($? > 128)) || break
    printf '%s' "$line" >> "$log"
  fi
  if ((SECONDS - said >= 15)); then
    echo "-- onehop: ${step:-begun}"
    said=$SECONDS
  fi
done; then
  grep -vE '^\[[0-9]+/[0-9]+\]' "$log" >&2 || true
  exit 1
fi
touch "$built"
