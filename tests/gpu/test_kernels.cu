// SPDX-License-Identifier: Apache-2.0
// Kernels of a user, with nothing but the public device headers.
#include "onehop/device/signal.cuh"
#include "onehop/device/tile.cuh"

#include "test_kernels.h"

namespace {

__device__ std::uint32_t ring_word(int rank, std::uint32_t round, std::uint32_t i) {
  return static_cast<std::uint32_t>(rank + 1) * 1000003u + round * 7919u + i;
}

}  // namespace

extern "C" __global__ void user_ring(const __grid_constant__ onehop::testing::RingParams p) {
  const int right = (p.view.rank + 1) % p.view.size;
  const int left = (p.view.rank + p.view.size - 1) % p.view.size;
  const std::uint32_t first = blockIdx.x * p.words;
  auto* const theirs = reinterpret_cast<std::uint32_t*>(p.view.peers[right]) + first;
  const auto* const mine = reinterpret_cast<const std::uint32_t*>(p.view.peers[p.view.rank]) + first;
  const int channel = static_cast<int>(blockIdx.x);
  for (std::uint32_t round = 0; round < p.rounds; ++round) {
    for (std::uint32_t i = threadIdx.x; i < p.words; i += blockDim.x)
      theirs[i] = ring_word(p.view.rank, round, i);
    bool there = onehop::device::barrier(p.view, channel);
    if (there) {
      for (std::uint32_t i = threadIdx.x; i < p.words; i += blockDim.x) {
        if (mine[i] != ring_word(left, round, i)) atomicAdd(p.wrong, 1u);
      }
      there = onehop::device::barrier(p.view, channel);  // every rank has read
    }
    if (!there) {
      if (threadIdx.x == 0) atomicAdd(p.gave_up, 1u);
      return;
    }
  }
}

extern "C" __global__ void user_signals(const __grid_constant__ onehop::testing::RingParams p) {
  const int right = (p.view.rank + 1) % p.view.size;
  const int left = (p.view.rank + p.view.size - 1) % p.view.size;
  const std::uint32_t first = blockIdx.x * p.words;
  auto* const theirs = reinterpret_cast<std::uint32_t*>(p.view.peers[right]) + first;
  const auto* const mine = reinterpret_cast<const std::uint32_t*>(p.view.peers[p.view.rank]) + first;
  const int written = 2 * static_cast<int>(blockIdx.x);
  const int read = written + 1;
  // One thread signals for its block, between two block barriers.
  const auto tell_and_hear = [&](int whom, int from, int channel) {
    __syncthreads();
    bool came = true;
    if (threadIdx.x == 0) {
      onehop::device::put_signal(p.view, whom, channel);
      came = onehop::device::wait_signal(p.view, from, channel);
    }
    return __syncthreads_and(came ? 1 : 0) != 0;
  };
  bool there = onehop::device::barrier_relaxed(p.view, written);
  for (std::uint32_t round = 0; there && round < p.rounds; ++round) {
    for (std::uint32_t i = threadIdx.x; i < p.words; i += blockDim.x)
      theirs[i] = ring_word(p.view.rank, round, i);
    there = tell_and_hear(right, left, written);
    if (!there) break;
    for (std::uint32_t i = threadIdx.x; i < p.words; i += blockDim.x) {
      if (mine[i] != ring_word(left, round, i)) atomicAdd(p.wrong, 1u);
    }
    there = tell_and_hear(left, right, read);
  }
  if (!there && threadIdx.x == 0) atomicAdd(p.gave_up, 1u);
}

extern "C" __global__ void user_misuse(const __grid_constant__ onehop::testing::MisuseParams p) {
  using onehop::testing::MisuseParams;
  bool came = false;
  switch (p.function) {
    case MisuseParams::put_signal:
      if (threadIdx.x == 0) onehop::device::put_signal(p.view, p.rank, p.channel);
      break;
    case MisuseParams::wait_signal:
      if (threadIdx.x == 0) came = onehop::device::wait_signal(p.view, p.rank, p.channel);
      break;
    case MisuseParams::barrier:
      came = onehop::device::barrier(p.view, p.channel);
      break;
    case MisuseParams::barrier_relaxed:
      came = onehop::device::barrier_relaxed(p.view, p.channel);
      break;
    case MisuseParams::put_tile:
      onehop::device::put_tile(p.view, p.rank, p.channel, 1024, p.view.peers[p.view.rank], 512);
      break;
    default:
      came = onehop::device::wait_tile(p.view, p.rank, p.channel);
      break;
  }
  if (threadIdx.x == 0) *p.returned = 1 + (came ? 1 : 0);
}

extern "C" __global__ void user_delay(const __grid_constant__ onehop::testing::DelayParams p) {
  const std::uint64_t start = onehop::device::now_ns();
  while (onehop::device::now_ns() - start < p.nanoseconds) {
  }
}
