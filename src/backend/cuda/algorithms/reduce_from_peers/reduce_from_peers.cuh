// SPDX-License-Identifier: Apache-2.0
// Reductions of long messages over the rings of point-to-point channels (ring.cuh).
//
// Reduce-scatter: every rank sends each peer that peer's block. Each rank reduces the blocks received from
// all peers and its own, chunk by chunk. One-shot reduce is the same with a single receiver.
//
// Two-shot reduce: the message is cut into a piece for every rank but the root. All ranks send these pieces
// to their owners; each owner reduces its piece and forwards the result to the root. So no rank sends or
// receives more than the size of the message.
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
    const ChannelParams::Pair& mine = p_.pairs[listens ? lane_ : 0];
    std::uint64_t count = mine.from.chunks[ring_];
    const bool forwards = p_.root >= 0;
    const ChannelEnd& root = p_.pairs[forwards ? p_.root : 0].to;
    std::uint64_t forwarded = forwards ? root.chunks[ring_] : 0;
    const bool failed = device::has_failed(p_.guard);

    for (std::size_t begin = std::size_t{ring_} * shape_.chunk; begin < p_.bytes;
         begin += std::size_t{shape_.rings} * shape_.chunk) {
      bool came =
          !listens || await_count(p_, peer_of_entry(p_, lane_), mine.from.chunks_ready + ring_, count + 1);
      if (forwards && lane_ == 31 && forwarded >= kRingDepth) {
        came = await_count(p_, peer_of_entry(p_, static_cast<unsigned>(p_.root)), root.chunks_taken + ring_,
                           forwarded - kRingDepth + 1);
      }
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
      if (forwards) {
        reduce(begin, length, from, slot(root, forwarded), 0, shape_.chunk);
      } else {
        reduce(begin, length, from, p_.out, begin, p_.bytes);
      }
      (void)part_.all(true);
      ++count;
      if (leads && listens) free_slot(mine.from.chunks_taken + ring_, count);
      // release.sys: pairs with the acquire in receive() on the root; publishes what these warps wrote.
      if (leads && forwards && lane_ == 31) {
        device::store_release(root.chunks_ready + ring_, forwarded + 1);
      }
      ++forwarded;
    }
    if (leads && listens) mine.from.chunks[ring_] = count;
    if (leads && forwards && lane_ == 31) root.chunks[ring_] = forwarded;
  }

 private:
  using Stored = typename E::Stored;

  /// Reduces into byte `to` of `out`, which has `end` bytes and is aligned to an element.
  __device__ __forceinline__ void reduce(std::size_t begin, unsigned length,
                                         const std::byte* const (&from)[kRanks], std::byte* out,
                                         std::size_t to, std::size_t end) const {
    const bool in_whole = reinterpret_cast<std::uintptr_t>(p_.in) % 16 == 0;
    const bool out_whole = reinterpret_cast<std::uintptr_t>(out) % 16 == 0;
    constexpr unsigned kAtOnce = kRanks == 2 ? 4 : kRanks == 4 ? 2 : 1;
    const unsigned stride = part_.stride();
    for (unsigned at = part_.first(); at < length; at += kAtOnce * stride) {
      Packet<16> data[kAtOnce][kRanks];
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        const unsigned here = at + i * stride;
        if (here >= length) continue;
#pragma unroll
        for (int r = 0; r < kRanks; ++r) {
          if (r >= size()) continue;
          data[i][r] = r == p_.rank ? load_packet<Stored, 16>(p_.in, begin + here, p_.bytes, in_whole)
                                    : load_whole<16>(from[r] + here);
        }
      }
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        const unsigned here = at + i * stride;
        if (here >= length) continue;
        const Packet<16> result =
            cuda::reduce<E, kOps, 16, kRanks>(size(), p_.scale, [&](int r) { return data[i][r]; });
        store_packet<Stored, 16>(out, to + here, end, out_whole, result);
      }
    }
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

/// Reduces the local part with the received parts. The entry that this rank forwards to has no sender.
template <class E, Ops kOps, int kRanks>
__device__ __forceinline__ void reduce_from_peers(const ChannelParams& p) {
  wait_for_previous();
  unsigned row = blockIdx.y;
  const unsigned ring = ring_of_warp();
  if (row < p.senders) {
    if (static_cast<int>(row) != p.root) RingChannel(p, p.pairs[row].to, peer_of_entry(p, row), ring).send();
    return;
  }
  row -= p.senders;
  if (row < p.receivers) return RingChannel(p, p.pairs[row].from, peer_of_entry(p, row), ring).receive();
  row -= p.receivers;
  if (row < p.parts) PeerReducer<E, kOps, kRanks>(p, share_of_warp(p, row)).run();
}

}  // namespace onehop::cuda
