#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# For the test of 09_cuda_ring_p2p.cu: runs it, and checks that it prints one line for each ordered pair of GPUs, with all
# attributes of the pair.
output=$("$@" 2>&1)
code=$?
echo "$output"
case "$output" in
  "skipped: "*) exit 0 ;;
esac
if [ "$code" -ne 0 ]; then
  exit "$code"
fi
gpus=$(echo "$output" | sed -n 's/^\([0-9]*\) GPUs wrote .*/\1/p')
if [ -z "$gpus" ]; then
  echo "it does not say how many GPUs there are" >&2
  exit 1
fi
attributes='access (enabled|none), performance rank [0-9]+, native atomics (yes|no), (NVLink x[1-9][0-9]*|PCIe)'
for from in $(seq 0 $((gpus - 1))); do
  for to in $(seq 0 $((gpus - 1))); do
    if [ "$from" -ne "$to" ] && ! echo "$output" | grep -Eqx "GPU $from -> GPU $to: $attributes"; then
      echo "there is no line of GPU $from -> GPU $to with its attributes" >&2
      exit 1
    fi
  done
done
lines=$(echo "$output" | grep -c '^GPU [0-9]* -> ')
if [ "$lines" -ne $((gpus * (gpus - 1))) ]; then
  echo "there are $lines lines of pairs and not $((gpus * (gpus - 1)))" >&2
  exit 1
fi
