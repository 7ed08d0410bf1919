// SPDX-License-Identifier: Apache-2.0
#include "onehop/device/signal.cuh"

#include "bench/cuda_clock.h"

namespace onehop::cli {
namespace {

constexpr int kChannel = 0;
constexpr std::uint64_t kLongestSpinNs = 10'000'000;

__device__ void spin(std::uint64_t ns) {
  const std::uint64_t begin = device::now_ns();
  const std::uint64_t bounded = ns < kLongestSpinNs ? ns : kLongestSpinNs;
  while (device::now_ns() - begin < bounded) {
  }
}

__global__ void __launch_bounds__(32)
    start_together(const __grid_constant__ DeviceView view, std::uint64_t delay_ns) {
  spin(delay_ns);
  (void)device::barrier_relaxed(view, kChannel);
}

// Stores each stamp after the signal that follows it: a signal waits for the stores before it.
__device__ bool compare_clocks(const DeviceView& view, ClockRecord& record) {
  if (view.rank != 0) {
    for (int round = 0; round < kClockRounds; ++round) {
      if (!device::wait_signal(view, 0, kChannel)) return false;
      const std::uint64_t heard = device::now_ns();
      device::put_signal(view, 0, kChannel);
      record.asked[0][round] = heard;
    }
    return true;
  }
  for (int peer = 1; peer < view.size; ++peer) {
    for (int round = 0; round < kClockRounds; ++round) {
      const std::uint64_t asked = device::now_ns();
      device::put_signal(view, peer, kChannel);
      if (!device::wait_signal(view, peer, kChannel)) return false;
      record.answered[peer][round] = device::now_ns();
      record.asked[peer][round] = asked;
    }
  }
  return true;
}

__global__ void __launch_bounds__(32)
    arrive(const __grid_constant__ DeviceView view, const __grid_constant__ ClockLog log) {
  const std::uint32_t index = *log.next < log.capacity ? *log.next : log.capacity - 1;
  ClockRecord& record = log.records[index];
  const std::uint32_t delay_ns = log.delays_ns[index];
  if (threadIdx.x == 0) (void)compare_clocks(view, record);  // a failure also ends the barrier below
  __syncwarp();
  (void)device::barrier_relaxed(view, kChannel);
  if (threadIdx.x != 0) return;
  spin(delay_ns);
  record.arrived = device::now_ns();
}

__global__ void __launch_bounds__(1) finish(const __grid_constant__ ClockLog log) {
  const std::uint64_t now = device::now_ns();
  const std::uint32_t index = *log.next;
  if (index >= log.capacity) return;
  log.records[index].done = now;
  *log.next = index + 1;
}

}  // namespace

cudaError_t load_clock_kernels() {
  cudaFuncAttributes attributes;
  cudaError_t result = cudaFuncGetAttributes(&attributes, start_together);
  if (result == cudaSuccess) result = cudaFuncGetAttributes(&attributes, arrive);
  if (result == cudaSuccess) result = cudaFuncGetAttributes(&attributes, finish);
  return result;
}

cudaError_t launch_start_together(const DeviceView& view, std::uint64_t delay_ns, cudaStream_t stream) {
  start_together<<<1, 32, 0, stream>>>(view, delay_ns);
  return cudaGetLastError();
}

cudaError_t launch_arrive(const DeviceView& view, const ClockLog& log, cudaStream_t stream) {
  arrive<<<1, 32, 0, stream>>>(view, log);
  return cudaGetLastError();
}

cudaError_t launch_finish(const ClockLog& log, cudaStream_t stream) {
  finish<<<1, 1, 0, stream>>>(log);
  return cudaGetLastError();
}

}  // namespace onehop::cli
