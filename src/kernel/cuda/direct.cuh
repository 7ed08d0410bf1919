// Data that copy engines bring straight to where it belongs, in symmetric memory: kernels meet before and
// after the copies, and move nothing themselves.
//
// Protocol. In every call every rank
//   meets    so that every peer's output may be written from now on: its stream has come to this call;
//   copies   into the peers' outputs;
//   meets    so that what the peers have copied here is there, and may be read by what follows in the stream.
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
