// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/copy_engine/window_barrier.cuh"

extern "C" __global__ void __launch_bounds__(32)
    window_barrier(const __grid_constant__ onehop::cuda::WindowBarrierParams params) {
  onehop::cuda::window_barrier(params);
}
