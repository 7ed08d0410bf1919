// SPDX-License-Identifier: Apache-2.0
// Point-to-point messages that are copied unchanged.
#include "kernel/cuda/pairs.cuh"
#include "kernel/cuda/relay.cuh"

extern "C" __global__ void __launch_bounds__(512, 2)
    exchange(const __grid_constant__ onehop::cuda::PairParams params) {
  onehop::cuda::exchange(params);
}

extern "C" __global__ void __launch_bounds__(512, 2)
    relay(const __grid_constant__ onehop::cuda::PairParams params) {
  onehop::cuda::relay(params);
}
