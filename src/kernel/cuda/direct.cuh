// SPDX-License-Identifier: Apache-2.0
// Copy engines write data directly to its destination in symmetric memory. The kernels synchronize the ranks
// (meet) before and after the copies, and move nothing themselves.
//
// Protocol. In every call every rank
//   meets    which makes every peer's output writable: the peer's stream has reached this call;
//   copies   into the peers' outputs;
//   meets    which completes the peers' copies into this rank: later work in the stream may read them.
//
// An out-of-place all-reduce works the same way in two shots, without memory of the group's. Data for rank
// r's piece waits in r's output, in the place of the sender's piece. In every call every rank
//   scatters  the first half of every other rank's piece of its input, then the second half (copy engine),
//             into that rank's output, at the place of its own piece;
//   adds      the first half of its piece, from its input and the received data, into its output (kernel of
//             copies.cuh, which begins when every rank's scatter has ended);
//   meets     so that every rank's first half has been added, and the data it used may be overwritten;
//   gathers   these sums into their places in every peer's output (copy engine);
//   adds, meets and gathers the second half;
//   meets.
// The copies share one stream: both halves are scattered, then both are gathered. The kernels run in the
// caller's stream. So one half is added while the copy engines move the other half, or the first sums.
//
// Each meeting has a number, which grows by one. In it a rank publishes at which place of symmetric memory
// its output lies, because the other ranks write to that place without asking. The words for the places exist
// twice, for even and odd meetings. A peer rewrites the word of meeting e in e + 2. By then it knows that
// this rank is in e + 1, and so has read the word.
#pragma once

#include "kernel/cuda/meeting.cuh"

namespace onehop::cuda {

/// Called by one block.
__device__ __forceinline__ void meet_at_place(const DirectParams& p) {
  const Meeting& m = p.meeting;
  const int peer = static_cast<int>(threadIdx.x);
  const bool minds = peer < m.size && peer != m.rank;
  const std::uint64_t side = (read_epoch(*m.control) & 1) * kMaxDevices;
  // Relaxed: published by the release of the same thread in meet(). The acquire there makes the peer's word
  // visible.
  if (minds) device::store_relaxed(p.peer_places[peer] + side, p.place);
  if (!meet(m)) return;
  if (minds && device::load_relaxed(p.own_places + side + peer) != p.place) {
    device::record_fault(m.guard, DeviceFault::misplaced, peer, m.phase);
  }
}

}  // namespace onehop::cuda
