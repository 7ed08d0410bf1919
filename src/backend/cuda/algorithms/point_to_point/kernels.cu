// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/point_to_point/exchange.cuh"

extern "C" __global__ void __launch_bounds__(512, 2)
    exchange(const __grid_constant__ onehop::cuda::ChannelParams params) {
  onehop::cuda::exchange(params);
}
extern "C" __global__ void __launch_bounds__(512, 2)
    exchange_pair(const __grid_constant__ onehop::cuda::ChannelPairParams params) {
  onehop::cuda::exchange(params);
}
