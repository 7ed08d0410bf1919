#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzz target of a build on its seeds: scripts/fuzz.sh BUILD_DIR SECONDS_PER_TARGET
# New inputs stay in the build directory; crashes too, and are named. Replay one with: TARGET FILE
set -euo pipefail

build=$1
seconds=$2
list=$build/fuzz-targets.txt
[[ -s $list ]] || {
  echo "fuzz: $build holds no fuzz targets; build the target 'fuzzers' of the preset 'asan-ubsan' first" >&2
  exit 1
}

while read -r name program corpus; do
  work=$build/fuzz-work/$name
  mkdir -p "$work/corpus" "$work/crashes"
  seeds=("$work/seeds")
  [[ ! -d $corpus ]] || seeds+=("$corpus")
  rm -rf "$work/seeds"
  "$program" --write-seeds "$work/seeds" < /dev/null
  if ! "$program" "$work/corpus" "${seeds[@]}" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="$work/crashes/" -print_final_stats=1 < /dev/null > "$work/log" 2>&1; then
    grep -vE '^#[0-9]+' "$work/log" | tail -n 60 >&2
    echo "fuzz: $name failed; the input is in $work/crashes" >&2
    exit 1
  fi
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log")
  echo "fuzz: $name, $runs inputs in $seconds s, no finding"
done < "$list"
