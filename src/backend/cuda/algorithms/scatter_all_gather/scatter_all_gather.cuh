// SPDX-License-Identifier: Apache-2.0
// Broadcast of long messages. The message is cut into a piece for every rank but the root. The root sends
// each rank its piece, and each rank forwards its piece to the others, chunk by chunk. So no rank sends or
// receives more than the size of the message.
#pragma once

#include "backend/cuda/algorithms/point_to_point/ring.cuh"

namespace onehop::cuda {

/// Called by the warps of a ring on a rank that is not the root. Forwards all chunks of that ring of
/// the rank's piece.
__device__ __forceinline__ void forward_ring(const ChannelParams& p, const RingShare& part) {
  const MessageShape shape = p.own_shape;
  const unsigned ring = part.ring();
  const unsigned lane = threadIdx.x % 32;
  if (ring >= shape.rings) return;
  // Lane i handles the peer of entry i and counts the chunks from it or to it.
  const bool has_peer = lane + 1 < static_cast<unsigned>(p.size);
  const bool from_root = static_cast<int>(lane) == p.root;
  const ChannelPair& mine = p.pairs[has_peer ? lane : 0];
  const ChannelEnd& end = from_root ? mine.from : mine.to;
  std::uint64_t count = end.chunks[ring];
  const bool failed = device::has_failed(p.guard);
  const auto slot = [&](const ChannelEnd& of, unsigned i) {
    return of.slots +
           (std::size_t{ring} * kRingDepth + __shfl_sync(0xffffffff, count, i) % kRingDepth) * p.slot;
  };
  for (std::size_t begin = std::size_t{ring} * shape.chunk; begin < p.bytes;
       begin += std::size_t{shape.rings} * shape.chunk) {
    bool came = true;
    if (from_root) {
      came = await_count(p, peer_of_entry(p, lane), end.chunks_ready[ring], count + 1);
    } else if (has_peer && count >= kRingDepth) {
      came = await_count(p, peer_of_entry(p, lane), end.chunks_taken[ring], count - kRingDepth + 1);
    }
    if (!part.all(came && !failed)) return poison_out(p, part, begin);
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
    if (!part.leads()) continue;
    if (from_root) {
      free_slot(end.chunks_taken[ring], count);
    } else if (has_peer) {
      // release.sys: pairs with the acquire in receive() on the other ranks; publishes what these warps
      // wrote.
      device::store_release(&end.chunks_ready[ring].chunks, count);
    }
  }
  if (part.leads() && has_peer) end.chunks[ring] = count;
}

/// Only the root sends with the sender rows. Local data (ChannelCall::in) is forwarded where `root` names the
/// root's entry, and copied on the root.
__device__ __forceinline__ void scatter_all_gather(const ChannelParams& p) {
  wait_for_previous();
  unsigned row = blockIdx.y;
  const unsigned ring = ring_of_warp();
  if (row < p.senders) return RingChannel(p, p.pairs[row].to, peer_of_entry(p, row), ring).send();
  row -= p.senders;
  if (row < p.receivers) {
    if (static_cast<int>(row) != p.root) {
      RingChannel(p, p.pairs[row].from, peer_of_entry(p, row), ring).receive();
    }
    return;
  }
  row -= p.receivers;
  if (row < p.parts) p.root >= 0 ? forward_ring(p, share_of_warp(p, row)) : copy_own<4>(p);
}

}  // namespace onehop::cuda
