// SPDX-License-Identifier: Apache-2.0
// Kernels that run between copies and synchronize the ranks: each rank's kernel signals the others that it
// has begun, and waits until theirs have.
#pragma once

#include "backend/cuda/sync/barrier.h"
#include "backend/cuda/sync/call.cuh"

namespace onehop::cuda {

/// Called by all threads of all blocks, with the same `counter` and flags on all ranks. True: every peer's
/// kernel has begun. So everything before it in the peer's stream, copies included, has completed and is
/// visible here. A rank that has failed does not arrive, so that no other takes for complete what it has not contributed.
__device__ __forceinline__ bool arrive_and_wait(const Barrier& b) {
  const std::uint64_t epoch = device::read_epoch(*b.counter);
  const int peer = static_cast<int>(threadIdx.x);
  bool came = !device::has_failed(b.guard);
  if (came && peer < b.size && peer != b.rank) {
    // release.sys: pairs with the acquire below, on the peer. Earlier work in this stream has been performed.
    if (blockIdx.x == 0) device::store_release(b.peer_flags[peer], epoch);
    came = device::wait_until(b.guard, peer, b.phase,
                              [&] { return device::load_acquire(b.own_flags + peer) >= epoch; });
  }
  came = __syncthreads_and(came ? 1 : 0) != 0;
  settle(*b.counter, epoch);
  return came;
}

}  // namespace onehop::cuda
