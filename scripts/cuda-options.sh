#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the CMake options, a line each, of a build for this machine alone.
#   CUDA=auto   kernels for the GPUs of this machine; none where no driver answers or nvcc is missing (the default)
#   CUDA=on     kernels also without a GPU, then for all architectures that releases have
#   CUDA=off    the host backend only
set -euo pipefail

case "${CUDA:=auto}" in
  auto | on | off) ;;
  *)
    echo "CUDA is '$CUDA'; it can be auto, on or off" >&2
    exit 2
    ;;
esac

# Compute capabilities such as 9.0, a line for each kind of GPU. Kernels need 8.0.
capabilities=
[[ $CUDA == off ]] || capabilities=$(timeout 20 nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | sort -u) || true
architectures=$(sed -nE 's/^([89]|[1-9][0-9])\.([0-9])$/\1\2-real/p' <<< "$capabilities" | paste -sd ';')

if [[ $CUDA == off ]]; then
  echo "-DONEHOP_CUDA=OFF"
elif [[ -n $architectures ]]; then
  # Without a compiler that works, auto builds for host ranks, and CMake says so.
  echo "-DONEHOP_CUDA=$([[ $CUDA == on ]] && echo ON || echo AUTO)"
  echo "-DCMAKE_CUDA_ARCHITECTURES=$architectures"
elif [[ $CUDA == on ]]; then
  echo "-DONEHOP_CUDA=ON"
  echo "-UCMAKE_CUDA_ARCHITECTURES"
else
  echo "-- onehop: no GPU found, so no kernels are built (CUDA=on builds them anyway)" >&2
  echo "-DONEHOP_CUDA=OFF"
fi
