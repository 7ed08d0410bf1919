// SPDX-License-Identifier: Apache-2.0
// Reductions of long messages over the streams of pairs.cuh.
//
// Reduce-scatter: every rank sends each peer that peer's block. Each rank combines the blocks received from
// all peers with its own, chunk by chunk. One-shot reduce is the same with a single receiver.
//
// Two-shot reduce: the message is cut into a piece for every rank but the root. All ranks send these pieces
// to their owners; each owner combines its piece and forwards the result to the root. So no rank sends or
// receives more than the size of the message.
#pragma once

#include "kernel/cuda/pair_stream.cuh"

namespace onehop::cuda {

/// Combines the local part with the parts received from all peers, in rank order.
template <class E, Op kOp, int kRanks>
class Combiner {
 public:
  __device__ __forceinline__ Combiner(const PairParams& p, const StreamPart& part)
      : p_(p), shape_(p.own_shape), part_(part), stream_(part.stream()), lane_(threadIdx.x % 32) {}

  /// Called by the warps of a stream: processes all its chunks.
  __device__ __forceinline__ void run() const {
    if (stream_ >= shape_.streams) return;
    // Lane i counts the chunks from the peer of entry i.
    const bool listens = lane_ + 1 < static_cast<unsigned>(size());
    const bool speaks = part_.speaks();
    const PairParams::Pair& mine = p_.pairs[listens ? lane_ : 0];
    std::uint64_t count = mine.from.chunks[stream_];
    const bool forwards = p_.root >= 0;
    const PairEnd& root = p_.pairs[forwards ? p_.root : 0].to;
    std::uint64_t forwarded = forwards ? root.chunks[stream_] : 0;

    for (std::size_t begin = std::size_t{stream_} * shape_.chunk; begin < p_.bytes;
         begin += std::size_t{shape_.streams} * shape_.chunk) {
      bool came =
          !listens || await_count(p_, pair_peer(p_, lane_), mine.from.chunks_ready + stream_, count + 1);
      if (forwards && lane_ == 31 && forwarded >= kPairDepth) {
        came = await_count(p_, pair_peer(p_, static_cast<unsigned>(p_.root)), root.chunks_taken + stream_,
                           forwarded - kPairDepth + 1);
      }
      if (!part_.all(came)) return;

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
        combine(begin, length, from, slot(root, forwarded), 0, shape_.chunk);
      } else {
        combine(begin, length, from, p_.out, begin, p_.bytes);
      }
      (void)part_.all(true);
      ++count;
      if (speaks && listens) tell_taken(mine.from.chunks_taken + stream_, count);
      // release.sys: pairs with the acquire in receive() on the root; publishes what these warps wrote.
      if (speaks && forwards && lane_ == 31) {
        device::store_release(root.chunks_ready + stream_, forwarded + 1);
      }
      ++forwarded;
    }
    if (speaks && listens) mine.from.chunks[stream_] = count;
    if (speaks && forwards && lane_ == 31) root.chunks[stream_] = forwarded;
  }

 private:
  using Stored = typename E::Stored;

  /// Combines into byte `to` of `out`, which has `end` bytes and is aligned to an element.
  __device__ __forceinline__ void combine(std::size_t begin, unsigned length,
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
        Accumulator<E, kOp, 16> total(data[i][0]);
#pragma unroll
        for (int r = 1; r < kRanks; ++r) {
          if (r < size()) total.add(data[i][r]);
        }
        store_packet<Stored, 16>(out, to + here, end, out_whole, total.result(p_.scale));
      }
    }
  }
  [[nodiscard]] __device__ __forceinline__ std::byte* slot(const PairEnd& end, std::uint64_t count) const {
    return end.slots + (std::size_t{stream_} * kPairDepth + count % kPairDepth) * p_.slot;
  }
  [[nodiscard]] __device__ __forceinline__ int size() const {
    return kRanks < kMaxDevices ? kRanks : p_.size;
  }

  const PairParams& p_;
  const PairShape shape_;
  const StreamPart part_;
  const unsigned stream_;
  const unsigned lane_;
};

/// Combines the local part with the received parts. The entry that this rank forwards to has no sender.
template <class E, Op kOp, int kRanks>
__device__ __forceinline__ void combine(const PairParams& p) {
  wait_for_previous();
  unsigned row = blockIdx.y;
  const unsigned stream = stream_of_warp();
  if (row < p.senders) {
    if (static_cast<int>(row) != p.root) PairStream(p, p.pairs[row].to, pair_peer(p, row), stream).send();
    return;
  }
  row -= p.senders;
  if (row < p.receivers) return PairStream(p, p.pairs[row].from, pair_peer(p, row), stream).receive();
  row -= p.receivers;
  if (row < p.parts) Combiner<E, kOp, kRanks>(p, part_of_warp(p, row)).run();
}

}  // namespace onehop::cuda
