// SPDX-License-Identifier: Apache-2.0
// Messages of exchange.cuh that travel in chunks through rings of slots, and code shared by the kernels that
// use them.
#pragma once

#include "backend/cuda/algorithms/point_to_point/point_to_point.h"
#include "backend/cuda/packet.cuh"
#include "backend/cuda/sync/call.cuh"

namespace onehop::cuda {

/// Frees a slot. Called by one thread, after a barrier of the threads that have read the slot. Relaxed: pairs
/// with the acquire in RingChannel::send() on the peer. It publishes nothing; only earlier loads must complete
/// first. They have, since their results were used ahead of that barrier, in whatever warp. A release would
/// wait for this rank's stores.
__device__ __forceinline__ void free_slot(ChunkFlag& taken, std::uint64_t chunks) {
  device::store_relaxed(&taken.chunks, chunks);
}

/// Waits until a flag that `peer` raises shows at least `wanted` chunks. Called by one thread; others follow it
/// through a barrier. acquire.sys: pairs with the release of the peer's thread that raises the flag.
__device__ __forceinline__ bool await_count(const ChannelCall& p, int peer, const ChunkFlag& flag,
                                            std::uint64_t wanted) {
  const std::uint64_t* const count = &flag.chunks;
  return device::wait_until(p.guard, peer, p.phase, [=] { return device::load_relaxed(count) >= wanted; }) &&
         device::load_acquire(count) >= wanted;
}

/// Fills packets of a ring's chunks from byte `begin` on with NaN; `first` and `stride`: of the packets in a chunk.
__device__ __forceinline__ void poison_chunks(std::byte* data, std::size_t bytes, const MessageShape& shape,
                                              std::size_t begin, unsigned first, unsigned stride) {
  for (; begin < bytes; begin += std::size_t{shape.rings} * shape.chunk) {
    const std::size_t end = bytes - begin < shape.chunk ? bytes : begin + shape.chunk;
    for (std::size_t at = begin + first; at < end; at += stride) store_nan<16>(data, at, end);
  }
}

/// One warp's ring of chunks.
class RingChannel {
 public:
  __device__ __forceinline__ RingChannel(const ChannelCall& p, const ChannelEnd& end, int peer, unsigned ring)
      : p_(p), end_(end), peer_(peer), ring_(ring), lane_(threadIdx.x % 32) {
    if (ring_ < end_.shape.rings) {
      begin_ = std::size_t{ring_} * end_.shape.chunk;
      count_ = end_.chunks[ring_];
    }
  }

  /// Whether the ring has another chunk.
  [[nodiscard]] __device__ __forceinline__ bool more() const {
    return ring_ < end_.shape.rings && begin_ < end_.bytes;
  }
  [[nodiscard]] __device__ __forceinline__ std::size_t begin() const { return begin_; }
  [[nodiscard]] __device__ __forceinline__ unsigned bytes() const {
    const std::size_t rest = end_.bytes - begin_;
    return rest < end_.shape.chunk ? static_cast<unsigned>(rest) : end_.shape.chunk;
  }
  [[nodiscard]] __device__ __forceinline__ std::byte* slot() const {
    return end_.slots + (std::size_t{ring_} * kRingDepth + count_ % kRingDepth) * p_.slot;
  }
  __device__ __forceinline__ void next() {
    begin_ += std::size_t{end_.shape.rings} * end_.shape.chunk;
    ++count_;
  }
  /// Stores the count for the next launch.
  __device__ __forceinline__ void keep() const {
    if (lane_ == 0 && ring_ < end_.shape.rings) end_.chunks[ring_] = count_;
  }

  /// Called by a warp: sends all chunks of the ring.
  __device__ __forceinline__ void send() {
    for (; more(); next()) {
      const bool unused = count_ < kRingDepth;
      if (!all(lane_ != 0 || unused || await(end_.chunks_taken[ring_], count_ - kRingDepth + 1))) return;
      std::byte* const to = slot();
      copy([&](unsigned at, bool whole) { return load(at, whole); },
           [&](unsigned at, bool, const Packet<16>& packet) { store_whole(to + at, packet); });
      __syncwarp();
      // release.sys: pairs with the acquire in receive() or reduce_from_peers.cuh, on the peer; publishes the chunk.
      if (lane_ == 0) device::store_release(&end_.chunks_ready[ring_].chunks, count_ + 1);
    }
    keep();
  }
  __device__ __forceinline__ void receive() {
    const bool failed = device::has_failed(p_.guard);
    for (; more(); next()) {
      if (!all(!failed && (lane_ != 0 || await(end_.chunks_ready[ring_], count_ + 1))))
        return poison(end_, begin_, lane_);
      const std::byte* const from = slot();
      copy([&](unsigned at, bool) { return load_whole<16>(from + at); },
           [&](unsigned at, bool whole, const Packet<16>& packet) { store(at, whole, packet); });
      __syncwarp();
      if (lane_ == 0) free_slot(end_.chunks_taken[ring_], count_ + 1);
    }
    keep();
  }

  /// Called by a warp: whether `mine` holds for all lanes. Also orders what they did before.
  [[nodiscard]] static __device__ __forceinline__ bool all(bool mine) {
    const bool every = __all_sync(0xffffffff, mine) != 0;
    __syncwarp();
    return every;
  }

 private:
  [[nodiscard]] __device__ __forceinline__ bool await(const ChunkFlag& flag, std::uint64_t wanted) const {
    return await_count(p_, peer_, flag, wanted);
  }
  [[nodiscard]] __device__ __forceinline__ Packet<16> load(unsigned at, bool whole) const {
    if (whole) return load_whole<16>(end_.data + begin_ + at);
    return load_bytes<16>(end_.data, begin_ + at, end_.bytes);
  }
  __device__ __forceinline__ void store(unsigned at, bool whole, const Packet<16>& packet) const {
    if (whole) return store_whole(end_.data + begin_ + at, packet);
    store_bytes<16>(end_.data, begin_ + at, end_.bytes, packet);
  }
  /// The call has failed: fills what this warp has not received with NaN (sync/call.cuh).
  /// Static, because a call would force the members of this object into memory.
  static __device__ __noinline__ void poison(const ChannelEnd& end, std::size_t begin, unsigned lane) {
    if (end.poison) poison_chunks(end.data, end.bytes, end.shape, begin, lane * 16, 512);
  }
  /// Moves the chunk, four packets per lane at a time.
  template <class Load, class Store>
  __device__ __forceinline__ void copy(Load&& load, Store&& store) const {
    constexpr unsigned kAtOnce = 4;
    const unsigned length = bytes();
    const bool whole = reinterpret_cast<std::uintptr_t>(end_.data) % 16 == 0 && length % 16 == 0;
    for (unsigned at = lane_ * 16; at < length; at += kAtOnce * 512) {
      Packet<16> packets[kAtOnce];
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        if (at + i * 512 < length) packets[i] = load(at + i * 512, whole);
      }
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        if (at + i * 512 < length) store(at + i * 512, whole, packets[i]);
      }
    }
  }

  const ChannelCall& p_;
  const ChannelEnd& end_;
  const int peer_;
  const unsigned ring_;
  const unsigned lane_;
  std::size_t begin_ = 0;    ///< offset of the chunk in the message
  std::uint64_t count_ = 0;  ///< number of the chunk in the ring, counted from the first launch
};

/// The part of a warp in a ring that several warps of a block share; each handles its part of every chunk.
/// Forwarding a received chunk waits for a release, so the remaining work must not take long.
class RingShare {
 public:
  /// `warp`: index among the warps that share rings, with `parts` warps per ring.
  __device__ __forceinline__ RingShare(unsigned warp, unsigned parts)
      : ring_(warp / parts), part_(warp % parts), parts_(parts) {}

  [[nodiscard]] __device__ __forceinline__ unsigned ring() const { return ring_; }
  /// Whether this warp signals on behalf of all warps of the ring.
  [[nodiscard]] __device__ __forceinline__ bool leads() const { return part_ == 0; }
  /// Of a chunk: the index of this thread's first packet, and the distance from one packet to the next.
  [[nodiscard]] __device__ __forceinline__ unsigned first() const {
    return (part_ * 32 + threadIdx.x % 32) * 16;
  }
  [[nodiscard]] __device__ __forceinline__ unsigned stride() const { return parts_ * 512; }

  /// Called by all warps of the ring: whether `mine` holds for all lanes. Also orders what they did before.
  [[nodiscard]] __device__ __forceinline__ bool all(bool mine) const {
    if (parts_ == 1) return RingChannel::all(mine);
    unsigned every;
    asm volatile(
        "{ .reg .pred mine, every; setp.ne.u32 mine, %1, 0; "
        "barrier.cta.red.and.pred every, %2, %3, mine; selp.u32 %0, 1, 0, every; }"
        : "=r"(every)
        : "r"(mine ? 1 : 0), "r"(1 + threadIdx.x / 32 / parts_), "r"(parts_ * 32)  // barrier 0 is the block's
        : "memory");
    return every != 0;
  }

 private:
  const unsigned ring_;
  const unsigned part_;
  const unsigned parts_;
};

/// The call has failed: fills this thread's part of ChannelCall::out with NaN (sync/call.cuh), in the ring's chunks
/// from byte `begin` on.
static __device__ __noinline__ void poison_out(const ChannelCall& p, RingShare part, std::size_t begin) {
  if (p.poison) poison_chunks(p.out, p.bytes, p.own_shape, begin, part.first(), part.stride());
}

/// The ring that a warp handles in its row.
__device__ __forceinline__ unsigned ring_of_warp() {
  return (blockIdx.x * blockDim.x + threadIdx.x) / 32;
}

/// A warp's part of the rings that the last rows share; `row` counts from the first of those rows.
__device__ __forceinline__ RingShare share_of_warp(const ChannelCall& p, unsigned row) {
  return {row * (gridDim.x * blockDim.x / 32) + ring_of_warp(), p.parts};
}

/// The peer of entry i of ChannelParams::pairs.
__device__ __forceinline__ int peer_of_entry(const ChannelCall& p, unsigned i) {
  const int peer = p.rank + 1 + static_cast<int>(i);
  return peer < p.size ? peer : peer - p.size;
}

/// Copies the data that stays on this rank. A thread has kAtOnce packets in flight.
template <int kAtOnce>
__device__ __forceinline__ void copy_own(const ChannelCall& p) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x * 16;
  for (std::size_t at = (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x) * 16; at < p.bytes;
       at += kAtOnce * stride) {
    Packet<16> packets[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (at + i * stride < p.bytes) packets[i] = load_bytes<16>(p.in, at + i * stride, p.bytes);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (at + i * stride < p.bytes) store_bytes<16>(p.out, at + i * stride, p.bytes, packets[i]);
    }
  }
}

}  // namespace onehop::cuda
