// SPDX-License-Identifier: Apache-2.0
// Reductions of long messages over the rings of point-to-point channels (ring.cuh).
//
// Reduce-scatter: every rank sends each peer that peer's block. Each rank reduces the blocks received from
// all peers and its own, chunk by chunk. A reduce is the same with a single receiver.
#pragma once

#include "backend/cuda/algorithms/point_to_point/ring.cuh"
#include "backend/cuda/reduce.cuh"
#include "call/scale.h"

namespace onehop::cuda {

/// Reduces the local part with the parts received from all peers, in rank order.
template <class E, Ops kOps, int kRanks>
class PeerReducer {
 public:
  __device__ __forceinline__ PeerReducer(const ChannelParams& p, const RingShare& part)
      : p_(p), shape_(p.own_shape), part_(part), ring_(part.ring()), lane_(threadIdx.x % 32) {}

  /// Called by the warps of a ring: processes all its chunks.
  __device__ __forceinline__ void run() const {
    if (ring_ >= shape_.rings) return;
    // Lane i counts the chunks from the peer of entry i.
    const bool listens = lane_ + 1 < static_cast<unsigned>(size());
    const bool leads = part_.leads();
    const ChannelPair& mine = p_.pairs[listens ? lane_ : 0];
    std::uint64_t count = mine.from.chunks[ring_];
    const bool failed = device::has_failed(p_.guard);

    for (std::size_t begin = std::size_t{ring_} * shape_.chunk; begin < p_.bytes;
         begin += std::size_t{shape_.rings} * shape_.chunk) {
      const bool came =
          !listens || await_count(p_, peer_of_entry(p_, lane_), mine.from.chunks_ready[ring_], count + 1);
      if (!part_.all(came && !failed)) return poison_out(p_, part_, begin);

      const std::byte* from[kRanks];
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        if (r >= size() || r == p_.rank) continue;
        const int i = r > p_.rank ? r - p_.rank - 1 : r - p_.rank - 1 + size();
        from[r] = slot(p_.pairs[i].from, __shfl_sync(0xffffffff, count, i));
      }
      const std::size_t rest = p_.bytes - begin;
      const unsigned length = rest < shape_.chunk ? static_cast<unsigned>(rest) : shape_.chunk;
      reduce(begin, length, from);
      (void)part_.all(true);
      ++count;
      if (leads && listens) free_slot(mine.from.chunks_taken[ring_], count);
    }
    if (leads && listens) mine.from.chunks[ring_] = count;
  }

 private:
  using Stored = typename E::Stored;

  __device__ __forceinline__ void reduce(std::size_t begin, unsigned length,
                                         const std::byte* const (&from)[kRanks]) const {
    const bool in_whole = reinterpret_cast<std::uintptr_t>(p_.in) % 16 == 0;
    const bool out_whole = reinterpret_cast<std::uintptr_t>(p_.out) % 16 == 0;
    constexpr unsigned kAtOnce = kRanks == 2 ? 4 : kRanks == 4 ? 2 : 1;
    device::load_ahead<kRanks, kAtOnce>(
        part_.first(), length, part_.stride(),
        [&](int r, unsigned at, Packet<16>& packet) {
          if (r >= size()) return;
          packet = r == p_.rank ? load_packet<Stored, 16>(p_.in, begin + at, p_.bytes, in_whole)
                                : load_whole<16>(from[r] + at);
        },
        [&](unsigned at, const Packet<16>(&packets)[kRanks]) {
          const Packet<16> result =
              cuda::reduce<E, kOps, 16, kRanks>(size(), p_.scale, [&](int r) { return packets[r]; });
          store_packet<Stored, 16>(p_.out, begin + at, p_.bytes, out_whole, result);
        });
  }
  [[nodiscard]] __device__ __forceinline__ std::byte* slot(const ChannelEnd& end, std::uint64_t count) const {
    return end.slots + (std::size_t{ring_} * kRingDepth + count % kRingDepth) * p_.slot;
  }
  [[nodiscard]] __device__ __forceinline__ int size() const {
    return kRanks < kMaxDevices ? kRanks : p_.size;
  }

  const ChannelParams& p_;
  const MessageShape shape_;
  const RingShare part_;
  const unsigned ring_;
  const unsigned lane_;
};

/// Reduces the local part with the received parts.
template <class E, Ops kOps, int kRanks>
__device__ __forceinline__ void reduce_from_peers(const ChannelParams& p) {
  wait_for_previous();
  unsigned row = blockIdx.y;
  const unsigned ring = ring_of_warp();
  if (row < p.senders) {
    return RingChannel(p, p.pairs[row].to, peer_of_entry(p, row), ring).send();
  }
  row -= p.senders;
  if (row < p.parts) PeerReducer<E, kOps, kRanks>(p, share_of_warp(p, row)).run();
}

}  // namespace onehop::cuda
