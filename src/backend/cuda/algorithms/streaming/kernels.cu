// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/streaming/one_shot.cuh"
#include "backend/cuda/algorithms/streaming/one_way.cuh"

extern "C" __global__ void __launch_bounds__(512, 2)
    streaming_exchange(const __grid_constant__ onehop::cuda::StreamParams params) {
  onehop::cuda::streaming_one_shot<onehop::cuda::OneShot::exchange, onehop::cuda::element::u32>(params);
}
extern "C" __global__ void __launch_bounds__(512, 2)
    streaming_exchange_any(const __grid_constant__ onehop::cuda::StreamParams params) {
  using namespace onehop::cuda;
  streaming_one_shot<OneShot::exchange, element::u32, onehop::kMaxDevices>(params);
}
extern "C" __global__ void __launch_bounds__(512, 2)
    streaming_move(const __grid_constant__ onehop::cuda::StreamParams params) {
  onehop::cuda::streaming_one_way<onehop::cuda::OneShot::exchange, onehop::cuda::element::u32>(params);
}
