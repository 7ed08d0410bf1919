// SPDX-License-Identifier: Apache-2.0
// Data that copy engines bring straight to where it belongs, in symmetric memory: kernels meet before and
// after the copies, and move nothing themselves.
//
// Protocol. In every call every rank
//   meets    so that every peer's output may be written from now on: its stream has come to this call;
//   copies   into the peers' outputs;
//   meets    so that what the peers have copied here is there, and may be read by what follows in the stream.
//
// An all-reduce does so out of place, two-shot, without memory of the group's: what comes for rank r's piece
// waits in r's output, where its sender's piece will be. In every call every rank
//   meets;
//   scatters  the first half of every other rank's piece of its input, then the second half (copy engine),
//             into that rank's output, at the place of its own piece;
//   adds      up the first half of its piece, from its input and from what has come, into its output (kernel
//             of copies.cuh, which begins when everyone's scatter has ended);
//   meets     so that everyone's first half has been added, and what lay in the outputs may be written over;
//   gathers   these sums into every peer's output, where they belong (copy engine);
//   adds, meets and gathers the second half;
//   meets.
// Copies are one stream: both halves are scattered, then both gathered. The kernels are the caller's, so a
// half is added while the other half's bytes, or the first sums, move.
//
// Each meeting has a number, which grows by one. With it a rank says at which place of symmetric memory its
// output lies, since the others have written, or will write, to that place of it without asking. The words
// for the places exist twice, for even and odd meetings: a peer writes that of meeting e again in e + 2, when
// it has heard that this rank is in e + 1, and so has read it.
#pragma once

#include "kernel/cuda/meeting.cuh"

namespace onehop::cuda {

/// By one block.
__device__ __forceinline__ void meet_at_place(const DirectParams& p) {
  const Meeting& m = p.meeting;
  const int peer = static_cast<int>(threadIdx.x);
  const bool minds = peer < m.size && peer != m.rank;
  const std::uint64_t side = (read_epoch(*m.control) & 1) * kMaxDevices;
  // Relaxed: published by the release of the same thread in meet(), whose acquire makes the peer's visible.
  if (minds) device::store_relaxed(p.peer_places[peer] + side, p.place);
  if (!meet(m)) return;
  if (minds && device::load_relaxed(p.own_places + side + peer) != p.place) {
    device::record_fault(m.guard, DeviceFault::misplaced, peer, m.phase);
  }
}

}  // namespace onehop::cuda
