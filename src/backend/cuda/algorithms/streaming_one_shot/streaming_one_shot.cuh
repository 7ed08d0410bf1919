// SPDX-License-Identifier: Apache-2.0
// Streaming one-shot all-reduce of floats: every rank sends its whole input to every other rank through Lamport
// buffers (wire/lamport.cuh), and reduces what it receives while it still sends. One launch carries up to 4 GiB.
//
// A block has a slice of the message, and communicates only with its counterparts on the other ranks. The slice is
// cut into chunks of kPackets packets per thread, and a block has a ring of p.depth chunks per source. One thread
// handles its packets of a chunk from the input to the output. While it waits for chunk t, it has sent chunk t + 1 and
// is loading chunk t + 2. So in-place calls work, the input is read once, and the link is busy while data is added.
//
// A call that fits the rings needs nothing else: by the rule of two calls (sync/call.cuh) they are empty. In longer
// calls, chunk t overwrites chunk t - depth, which the receiver must have cleared. A clear is a plain store. It may
// be performed later than the data that the same thread sends afterwards, so the arrival of data proves nothing
// about it. Therefore the receiver gives credits:
//   a mover clears its packets and raises the count of its warp               (release.cta)
//   a warp that does nothing else sees the counts of all movers' warps        (acquire.cta)
//     and gives the credit to every peer's block                              (release.sys)
//   a warp of that block receives it from all peers                           (acquire.sys)
//     and raises the count of credits                                         (release.cta)
//   a mover sees that count and overwrites the chunk.                         (acquire.cta)
// Warps of their own do this because a release waits until all stores before it are performed.
//
// No rank is blamed for a credit that it does not owe. A thread sends chunk t + 1 only when it has cleared chunk t - 1.
// So when all warps of a block have cleared c + 2 chunks, the peers have cleared c. Only then does the block wait for
// that credit, with a deadline. This holds fast warps back, but the slowest warp of all ranks always has its credits,
// since chunks_per_credit() <= depth - 3. It has its data, too, because the others are not behind.
#pragma once

#include "backend/cuda/algorithms/streaming_one_shot/streaming_one_shot.h"
#include "backend/cuda/sync/progress.cuh"
#include "backend/cuda/wire/lamport.cuh"

namespace onehop::cuda {

/// kRanks: the number of ranks, or kMaxDevices for any number up to that.
template <class E, Op kOp, int kRanks>
class StreamingOneShot {
 public:
  /// Numbers of chunks, in shared memory.
  struct Progress {
    std::uint32_t cleared[max_threads(kRanks) / 32];  ///< by each warp of movers
    std::uint32_t credited;                           ///< by all peers
  };

  __device__ __forceinline__ StreamingOneShot(const StreamParams& p, Progress& progress)
      : p_(p), progress_(progress) {
    const std::size_t begin = blockIdx.x * p.slice;
    begin_ = begin * kStreamWidth;
    ring_ = blockIdx.x * p.block_stride + threadIdx.x * kStreamWidth;
    packets_ = static_cast<unsigned>(p.packets - begin < p.slice ? p.packets - begin : p.slice);
    chunks_ = (packets_ + chunk() - 1) / chunk();
  }

  __device__ __forceinline__ void run() {
    if (threadIdx.x < sizeof(Progress) / sizeof(std::uint32_t))
      reinterpret_cast<std::uint32_t*>(&progress_)[threadIdx.x] = 0;
    if (threadIdx.x >= p_.movers) return exchange_credits();
    // Only the last block can have a packet that is not whole. The others' loop has no branches around loads.
    const bool whole = p_.aligned && begin_ + std::size_t{packets_} * kStreamWidth <= p_.bytes;
    // Keeps the compiler from making addresses after the previous kernel has ended, where it would cost time.
    asm volatile("" : "+l"(begin_), "+l"(ring_), "+r"(packets_));
    wait_for_previous();
    if (whole) {
      move<true>();
    } else {
      move<false>();
    }
  }

 private:
  using Slot = Lamport<E>;
  using Data = typename Slot::Data;
  using Wire = typename Slot::Wire;
  using Stored = typename E::Stored;
  static constexpr int kPackets = stream_packets(kRanks);
  static constexpr DeviceFault::Phase kPhase = DeviceFault::phase_of(Collective::all_reduce);

  /// kWhole: all packets of the block can be loaded and stored whole.
  template <bool kWhole>
  __device__ __forceinline__ void move() {
    Data own[3][kPackets];  // of chunks t, t + 1, t + 2
    load<kWhole>(own[0], 0);
    load<kWhole>(own[1], 1);
    const std::uint64_t epoch = device::read_epoch(*p_.counter);
    const bool failed = device::has_failed(p_.guard);
    if ((epoch & 1) != 0) ring_ += p_.parity_stride;
    unsigned slot = 0;  // of chunk t
    send(own[0], 0, slot);
    let_next_start(p_.early);
    settle(*p_.counter, epoch);
    if (failed) return poison(p_, 0);
    for (unsigned t = 0; t < chunks_; ++t) {
      load<kWhole>(own[2], t + 2);
      const unsigned next = slot + 1 == p_.depth ? 0 : slot + 1;
      if (t + 1 < chunks_) {
        if (t + 1 >= p_.depth && !await_raised(p_.guard, &progress_.credited, 1, t + 2 - p_.depth)) {
          return poison(p_, t);
        }
        send(own[1], t + 1, next);
      }
      if (!finish<kWhole>(own[0], t, slot)) return poison(p_, t);
      if (p_.movers != blockDim.x) raise(progress_.cleared[threadIdx.x / 32], t + 1);
      slot = next;
#pragma unroll
      for (int k = 0; k < kPackets; ++k) {
        own[0][k] = own[1][k];
        own[1][k] = own[2][k];
      }
    }
  }

  /// The two warps besides the movers: the first one gives credits, the second one receives them.
  __device__ __forceinline__ void exchange_credits() {
    wait_for_previous();
    const std::uint64_t epoch = device::read_epoch(*p_.counter);
    const bool failed = device::has_failed(p_.guard);
    settle(*p_.counter, epoch);
    if (failed || chunks_ <= p_.depth) return;
    const bool gives = threadIdx.x < p_.movers + 32;
    const unsigned lane = threadIdx.x % 32;
    const bool is_peer = lane < static_cast<unsigned>(ranks()) && lane != static_cast<unsigned>(p_.rank);
    const unsigned most = chunks_ - p_.depth;  // no mover waits for more
    for (unsigned count = 0; count < most;) {
      count = most - count < chunks_per_credit(p_.depth) ? most : count + chunks_per_credit(p_.depth);
      const std::uint64_t credit = epoch << kCreditBits | count;
      if (!await_raised(p_.guard, progress_.cleared, p_.movers / 32, gives ? count : count + 2)) return;
      if (gives) {
        // release.sys: pairs with the acquire below, on the peer. Publishes the clears that await_raised() acquired.
        if (is_peer) device::store_release(&p_.credits[lane][blockIdx.x].from[p_.rank], credit);
        continue;
      }
      bool came = true;
      if (is_peer) {
        const std::uint64_t* const word = &p_.credits[p_.rank][blockIdx.x].from[lane];
        // acquire.sys: pairs with the release above. The peer may have given further credits of this call.
        came = device::wait_until<kPollsOfMany>(p_.guard, static_cast<int>(lane), kPhase,
                                                [=] { return device::load_acquire(word) >= credit; });
      }
      if (!__all_sync(0xffffffff, came)) return;
      raise(progress_.credited, count);
    }
  }

  /// Packets of a chunk.
  [[nodiscard]] __device__ __forceinline__ unsigned chunk() const {
    return p_.movers * kPackets;
  }
  /// This thread's k-th packet of chunk t, in the slice.
  [[nodiscard]] __device__ __forceinline__ unsigned packet(unsigned t, int k) const {
    return t * chunk() + static_cast<unsigned>(k) * p_.movers + threadIdx.x;
  }
  /// Where it lies in the message.
  [[nodiscard]] __device__ __forceinline__ std::size_t at(unsigned packet) const {
    return begin_ + std::size_t{packet} * kStreamWidth;
  }
  /// Where it lies in a ring.
  [[nodiscard]] __device__ __forceinline__ std::size_t place(unsigned slot, int k) const {
    return ring_ + (slot * chunk() + static_cast<unsigned>(k) * p_.movers) * kStreamWidth;
  }

  template <bool kWhole>
  __device__ __forceinline__ void load(Data (&own)[kPackets], unsigned t) const {
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      const unsigned i = packet(t, k);
      // A thread without a packet waits for none: as if its own, which is empty, had arrived from all ranks.
      if constexpr (kWhole) {
        own[k] = load_whole_if<kStreamWidth>(i < packets_, p_.in + at(i));
      } else {
        own[k] = {};
        if (i < packets_) own[k] = load_packet<Stored, kStreamWidth>(p_.in, at(i), p_.bytes, p_.aligned);
      }
    }
  }
  __device__ __forceinline__ void send(const Data (&own)[kPackets], unsigned t, unsigned slot) const {
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      if (packet(t, k) >= packets_) continue;
      const Wire wire = Slot::wire(own[k]);
#pragma unroll
      for (int step = 1; step < kRanks; ++step) {
        if (step < ranks()) Slot::send(p_.outbox[step] + place(slot, k), wire);
      }
    }
  }
  /// Waits for every peer's packets of chunk t, stores their reduction and clears them.
  template <bool kWhole>
  __device__ __forceinline__ bool finish(const Data (&own)[kPackets], unsigned t, unsigned slot) const {
    Wire wires[kPackets][kRanks];
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      // A placeholder for what has not arrived, or need not arrive.
#pragma unroll
      for (int r = 0; r < kRanks; ++r) wires[k][r] = Slot::wire(own[k]);
    }
    const auto arrived_from = [&](int r) {
      bool all = true;
#pragma unroll
      for (int k = 0; k < kPackets; ++k) all = all && Slot::arrived(wires[k][r]);
      return all;
    };
    const bool came = device::wait_until_all(
        p_.guard, kPhase,
        [&] {
#pragma unroll
          for (int k = 0; k < kPackets; ++k) {
            if (packet(t, k) >= packets_) continue;
#pragma unroll
            for (int r = 0; r < kRanks; ++r) {
              if (r < ranks() && r != p_.rank) wires[k][r] = Slot::peek(inbox(r) + place(slot, k));
            }
          }
          bool all = true;
#pragma unroll
          for (int r = 0; r < kRanks; ++r) all = all && arrived_from(r);
          return all;
        },
        [&] {
          unsigned missing = 0;
#pragma unroll
          for (int r = 0; r < kRanks; ++r) missing |= arrived_from(r) ? 0 : 1u << r;
          return missing;
        });
    if (!came) return false;
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      const unsigned i = packet(t, k);
      if (i >= packets_) continue;
      Accumulator<E, kOp, kStreamWidth> total(Slot::data(wires[k][0]));  // in rank order on every rank
#pragma unroll
      for (int r = 1; r < kRanks; ++r) {
        if (r < ranks()) total.add(Slot::data(wires[k][r]));
      }
      const Data result = total.result(p_.scale);
      if constexpr (kWhole) {
        store_whole(p_.out + at(i), result);
      } else {
        store_packet<Stored, kStreamWidth>(p_.out, at(i), p_.bytes, p_.aligned, result);
      }
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        if (r < ranks() && r != p_.rank) Slot::taken(inbox(r) + place(slot, k));
      }
    }
    return true;
  }
  [[nodiscard]] __device__ __forceinline__ std::byte* inbox(int r) const {
    return p_.inbox + static_cast<unsigned>(r) * p_.rank_stride;
  }

  /// The call has failed: fills this thread's packets of the output with NaN, from chunk t on. Static, because a call
  /// would force the members of this object into memory.
  static __device__ __noinline__ void poison(const StreamParams& p, unsigned t) {
    if (!p.poison) return;
    const std::size_t begin = blockIdx.x * p.slice;
    const std::size_t end = begin + p.slice < p.packets ? begin + p.slice : p.packets;
    for (std::size_t i = begin + std::size_t{t} * p.movers * kPackets + threadIdx.x; i < end; i += p.movers)
      store_nan<kStreamWidth>(p.out, i * kStreamWidth, p.bytes);
  }

  [[nodiscard]] __device__ __forceinline__ int ranks() const {
    return kRanks < kMaxDevices ? kRanks : p_.size;
  }

  const StreamParams& p_;
  Progress& progress_;
  std::size_t begin_;  ///< of the slice, in bytes
  std::size_t ring_;   ///< where this thread's first packet lies in a ring of this epoch's parity
  unsigned packets_;   ///< of the slice
  unsigned chunks_;    ///< of the slice
};

template <class E, Op kOp, int kRanks>
__device__ __forceinline__ void streaming_one_shot(const StreamParams& params) {
  using Kernel = StreamingOneShot<E, kOp, kRanks>;
  __shared__ typename Kernel::Progress progress;
  Kernel(params, progress).run();
}

}  // namespace onehop::cuda
