// SPDX-License-Identifier: Apache-2.0
// Copy engines write data directly to its destination in symmetric memory. The kernel here synchronizes the
// ranks before and after the copies, and moves nothing itself.
//
// Protocol. In every call every rank
//   passes a barrier  which makes every peer's output writable: the peer's stream has reached this call;
//   copies            into the peers' outputs;
//   passes a barrier  which completes the peers' copies into this rank: later work in the stream may read them.
//
// An out-of-place all-reduce works the same way in two shots, without scratch memory for data. Data for rank
// r's piece waits in r's output, in the place of the sender's piece. In every call every rank
//   scatters  the first half of every other rank's piece of its input, then the second half (copy engine),
//             into that rank's output, at the offset of its own piece;
//   reduces   the first half of its piece, from its input and the received data, into its output (kernel of
//             reduce_piece.cuh, which begins when every rank's scatter has ended);
//   passes a barrier, so that every rank's first half has been reduced, and the data it used may be
//             overwritten;
//   gathers   these sums to their offsets in every peer's output (copy engine);
//   reduces, passes a barrier and gathers the second half;
//   passes a barrier.
// The copies share one stream: both halves are scattered, then both are gathered. The kernels run in the
// caller's stream. So one half is reduced while the copy engines move the other half, or the first sums.
//
// Barriers are counted. In each a rank publishes the window of symmetric memory in which its output lies,
// because the other ranks write there without asking. The words for the windows exist twice, for even and odd
// barriers. A peer rewrites the word of barrier e in e + 2. By then it knows that this rank is in e + 1, and so
// has read the word.
#pragma once

#include "backend/cuda/algorithms/copy_engine/copy_engine.h"
#include "backend/cuda/packet.cuh"
#include "backend/cuda/sync/barrier.cuh"

namespace onehop::cuda {

/// Called by one warp, a block of its own.
__device__ __forceinline__ void window_barrier(const WindowBarrierParams& p) {
  const Barrier& b = p.barrier;
  const int peer = static_cast<int>(threadIdx.x);
  const bool is_peer = peer < b.size && peer != b.rank;
  const std::uint64_t side = (device::read_epoch(*b.counter) & 1) * kMaxDevices;
  // Relaxed: published by the release of the same thread in arrive_and_wait(). The acquire there makes the
  // peer's word visible.
  if (is_peer) device::store_relaxed(p.peer_windows[peer] + side, p.window);
  const bool came = arrive_and_wait(b);
  if (came && is_peer && device::load_relaxed(p.own_windows + side + peer) != p.window) {
    device::record_fault(b.guard, DeviceFault::misplaced, peer, b.phase);
  }
  __syncwarp();  // the block is a warp; orders the faults that its lanes have recorded before the look at them
  if (!device::has_failed(b.guard)) return;
  for (const WindowBarrierParams::Received& each : p.received) {
    for (std::size_t at = threadIdx.x * std::size_t{16}; at < each.bytes; at += blockDim.x * std::size_t{16})
      store_nan<16>(each.data, at, each.bytes);
  }
}

}  // namespace onehop::cuda
