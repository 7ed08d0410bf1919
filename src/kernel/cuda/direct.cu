// SPDX-License-Identifier: Apache-2.0
// The kernel that runs before and after direct copies.
#include "kernel/cuda/direct.cuh"

extern "C" __global__ void __launch_bounds__(32)
    meet_at_place(const __grid_constant__ onehop::cuda::DirectParams params) {
  onehop::cuda::meet_at_place(params);
}
