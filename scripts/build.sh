#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures and builds one CMake preset: [CMAKE_ARGS=-D...] scripts/build.sh PRESET [TARGET...]
# Configuration output is shown only when it fails; on a terminal ninja shows one line of progress.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
log=build/$preset.configure.log
mkdir -p build
# shellcheck disable=SC2086  # several arguments
if ! cmake --preset "$preset" ${CMAKE_ARGS:-} > "$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
grep '^-- onehop:' "$log" || true

targets=()
(($# == 0)) || targets=(--target "$@")
if [[ -t 1 ]]; then
  cmake --build --preset "$preset" -j "${JOBS:-$(nproc)}" "${targets[@]}"
else
  # Into a pipe ninja would print a line per file: keep them for the failure.
  log=build/$preset.build.log
  if ! cmake --build --preset "$preset" -j "${JOBS:-$(nproc)}" "${targets[@]}" > "$log" 2>&1; then
    grep -vE '^\[[0-9]+/[0-9]+\]' "$log" >&2 || true
    exit 1
  fi
fi
