// SPDX-License-Identifier: Apache-2.0
// The kernel of copies.cuh that does not add.
#include "kernel/cuda/copies.cuh"

extern "C" __global__ void __launch_bounds__(512, 2)
    collect_round(const __grid_constant__ onehop::cuda::RoundParams params) {
  onehop::cuda::collect_round(params);
}
