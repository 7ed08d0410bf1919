// SPDX-License-Identifier: Apache-2.0
// Broadcast of long messages. The message is cut into a piece for every rank but the root. The root sends
// each rank its piece, and each rank relays its piece to the others, chunk by chunk. So no rank sends or
// receives more than the size of the message.
#pragma once

#include "kernel/cuda/pair_stream.cuh"

namespace onehop::cuda {

/// Called by the warps of a stream on a rank that is not the root. Relays all chunks of that stream of the
/// rank's piece.
__device__ __forceinline__ void relay_stream(const PairParams& p, const StreamPart& part) {
  const PairShape shape = p.own_shape;
  const unsigned stream = part.stream();
  const unsigned lane = threadIdx.x % 32;
  if (stream >= shape.streams) return;
  // Lane i handles the peer of entry i and counts the chunks from it or to it.
  const bool minds = lane + 1 < static_cast<unsigned>(p.size);
  const bool from_root = static_cast<int>(lane) == p.root;
  const PairParams::Pair& mine = p.pairs[minds ? lane : 0];
  const PairEnd& end = from_root ? mine.from : mine.to;
  std::uint64_t count = end.chunks[stream];
  const auto slot = [&](const PairEnd& of, unsigned i) {
    return of.slots +
           (std::size_t{stream} * kPairDepth + __shfl_sync(0xffffffff, count, i) % kPairDepth) * p.slot;
  };
  for (std::size_t begin = std::size_t{stream} * shape.chunk; begin < p.bytes;
       begin += std::size_t{shape.streams} * shape.chunk) {
    bool came = true;
    if (from_root) {
      came = await_count(p, pair_peer(p, lane), end.chunks_ready + stream, count + 1);
    } else if (minds && count >= kPairDepth) {
      came = await_count(p, pair_peer(p, lane), end.chunks_taken + stream, count - kPairDepth + 1);
    }
    if (!part.all(came)) return;
    const std::byte* const from = slot(p.pairs[p.root].from, static_cast<unsigned>(p.root));
    std::byte* to[kMaxDevices - 1];
#pragma unroll
    for (int i = 0; i < kMaxDevices - 1; ++i) {
      if (i + 1 < p.size) to[i] = slot(p.pairs[i].to, static_cast<unsigned>(i));
    }
    const std::size_t rest = p.bytes - begin;
    const unsigned length = rest < shape.chunk ? static_cast<unsigned>(rest) : shape.chunk;
    constexpr unsigned kAtOnce = 4;
    const unsigned stride = part.stride();
    for (unsigned at = part.first(); at < length; at += kAtOnce * stride) {
      Packet<16> packets[kAtOnce];
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        if (at + i * stride < length) packets[i] = load_whole<16>(from + at + i * stride);
      }
#pragma unroll
      for (int r = 0; r < kMaxDevices - 1; ++r) {
        if (r + 1 >= p.size || r == p.root) continue;
#pragma unroll
        for (unsigned i = 0; i < kAtOnce; ++i) {
          if (at + i * stride < length) store_whole(to[r] + at + i * stride, packets[i]);
        }
      }
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        if (at + i * stride < length) store_bytes<16>(p.out, begin + at + i * stride, p.bytes, packets[i]);
      }
    }
    (void)part.all(true);
    ++count;
    if (!part.speaks()) continue;
    if (from_root) {
      tell_taken(end.chunks_taken + stream, count);
    } else if (minds) {
      // release.sys: pairs with the acquire in receive() on the other ranks; publishes what these warps
      // wrote.
      device::store_release(end.chunks_ready + stream, count);
    }
  }
  if (part.speaks() && minds) end.chunks[stream] = count;
}

/// Only the root sends with the sender rows. Local data (PairParams::in) is relayed where `root` names the
/// root's entry, and copied on the root.
__device__ __forceinline__ void relay(const PairParams& p) {
  wait_for_previous();
  unsigned row = blockIdx.y;
  const unsigned stream = stream_of_warp();
  if (row < p.senders) return PairStream(p, p.pairs[row].to, pair_peer(p, row), stream).send();
  row -= p.senders;
  if (row < p.receivers) {
    if (static_cast<int>(row) != p.root) {
      PairStream(p, p.pairs[row].from, pair_peer(p, row), stream).receive();
    }
    return;
  }
  row -= p.receivers;
  if (row < p.parts) p.root >= 0 ? relay_stream(p, part_of_warp(p, row)) : keep_own<4>(p);
}

}  // namespace onehop::cuda
