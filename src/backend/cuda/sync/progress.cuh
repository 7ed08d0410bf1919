// SPDX-License-Identifier: Apache-2.0
// How the warps of a block tell each other how far they are: counts in shared memory, which only increase. For
// kernels whose warps have different roles, or that reuse memory once all warps of a block have read it.
#pragma once

#include "onehop/device/signal.cuh"

#include "backend/cuda/sync/call.cuh"

namespace onehop::cuda {

/// The address of shared memory in its own state space, as inline PTX needs it.
[[nodiscard]] __device__ __forceinline__ unsigned shared_address(const std::uint32_t* at) {
  return static_cast<unsigned>(__cvta_generic_to_shared(at));
}

/// Called by all lanes of a warp: raises its count.
__device__ __forceinline__ void raise(std::uint32_t& count, std::uint32_t to) {
  __syncwarp();
  // release.cta: pairs with the acquire in await_raised(). Publishes this warp's stores and what it has acquired,
  // and orders its loads before the update.
  if (threadIdx.x % 32 == 0) {
    asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(shared_address(&count)), "r"(to) : "memory");
  }
}

/// Polls of shared memory between two checks whether another warp has given up.
inline constexpr int kPollsPerCheck = 1 << 14;

/// Called by all lanes of a warp: waits until `counts` counts (at most 32) have reached `to`. The warps that raise them
/// wait for peers with a deadline, or for others that do. So this function checks only whether one of them has given
/// up, and then returns false.
[[nodiscard]] __device__ __forceinline__ bool await_raised(const DeviceGuard& guard,
                                                           const std::uint32_t* first, unsigned counts,
                                                           std::uint32_t to) {
  const unsigned lane = threadIdx.x % 32;
  const std::uint32_t* const mine = first + (lane < counts ? lane : 0);
  for (int polls = 1;; ++polls) {
    std::uint32_t seen;
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(seen) : "r"(shared_address(mine)) : "memory");
    if (__all_sync(0xffffffff, seen >= to)) break;
    if (polls % kPollsPerCheck == 0 && __any_sync(0xffffffff, device::has_failed(guard))) return false;
  }
  __syncwarp();
  return true;
}

}  // namespace onehop::cuda
