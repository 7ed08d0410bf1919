#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One binary runs with and without GPUs: no FILE may need the driver, NVML, the CUDA runtime or NCCL to start.
#   scripts/check-linkage.sh FILE...
set -euo pipefail

(($# > 0)) || {
  echo "usage: $0 FILE..." >&2
  exit 2
}
status=0
for file in "$@"; do
  needed=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  # A C++ program that needs nothing at all is not what we meant to look at.
  [[ $needed == *libc.so* ]] || {
    echo "$file: no list of needed libraries found" >&2
    exit 1
  }
  forbidden=$(grep -E '^lib(cuda|nvidia|cudart|nvrtc|nccl|nvToolsExt)' <<< "$needed" | paste -sd ' ' || true)
  if [[ -n $forbidden ]]; then
    echo "$file needs $forbidden at start; load it at run time (src/driver)" >&2
    status=1
  fi
done
exit $status
