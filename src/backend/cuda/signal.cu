// SPDX-License-Identifier: Apache-2.0
// Signals and barriers on a stream: kernels of one warp that call the device functions.
#include "onehop/device/signal.cuh"

#include "backend/cuda/signal_params.h"

extern "C" __global__ void __launch_bounds__(32)
    stream_barrier(const __grid_constant__ onehop::cuda::SignalParams params) {
  (void)onehop::device::barrier(params.view, params.channel);
}

extern "C" __global__ void __launch_bounds__(1)
    stream_put_signal(const __grid_constant__ onehop::cuda::SignalParams params) {
  onehop::device::put_signal(params.view, params.peer, params.channel);
}

extern "C" __global__ void __launch_bounds__(1)
    stream_wait_signal(const __grid_constant__ onehop::cuda::SignalParams params) {
  (void)onehop::device::wait_signal(params.view, params.peer, params.channel);
}
