// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/scatter_all_gather/scatter_all_gather.cuh"

extern "C" __global__ void __launch_bounds__(512, 2)
    scatter_all_gather(const __grid_constant__ onehop::cuda::ChannelParams params) {
  onehop::cuda::scatter_all_gather(params);
}
