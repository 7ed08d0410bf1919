// SPDX-License-Identifier: Apache-2.0
// Streaming one-shot all-reduce of floats between 2 ranks: each sends its whole input to the other one (stream.cuh), and
// reduces what it receives while it still sends.
//
// While a thread waits for chunk t, it has sent chunk t + 1 and is loading chunk t + 2. So the input is read once, and
// the link is busy while data is added. It sends chunk t + 1 only when it has cleared chunk t - 1. So when all warps of
// a block have cleared c + 2 chunks, the peers have cleared c.
#pragma once

#include "backend/cuda/algorithms/streaming/stream.cuh"

namespace onehop::cuda {

template <class E, Op kOp>
class StreamingOneShot : public Stream<2, kOneShotPackets, kOneShotLag> {
 public:
  using Base = Stream<2, kOneShotPackets, kOneShotLag>;
  __device__ __forceinline__ StreamingOneShot(const StreamParams& p, Base::Progress& progress)
      : Base(p, progress, 1) {}

  __device__ __forceinline__ void run() {
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
  static constexpr int kRanks = 2;
  static constexpr int kPackets = kOneShotPackets;

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
      const unsigned next = next_slot(slot);
      if (t + 1 < chunks_) {
        if (!await_credit(t + 1)) return poison(p_, t);
        send(own[1], t + 1, next);
      }
      if (!finish<kWhole>(own[0], t, slot)) return poison(p_, t);
      cleared(t + 1);
      slot = next;
#pragma unroll
      for (int k = 0; k < kPackets; ++k) {
        own[0][k] = own[1][k];
        own[1][k] = own[2][k];
      }
    }
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
      Slot::send(p_.outbox[1] + place(slot, k), Slot::wire(own[k]));
    }
  }
  /// Waits for the peer's packets of chunk t, stores their reduction and clears them.
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
        p_.guard, p_.phase,
        [&] {
#pragma unroll
          for (int k = 0; k < kPackets; ++k) {
            if (packet(t, k) >= packets_) continue;
#pragma unroll
            for (int r = 0; r < kRanks; ++r) {
              if (r != p_.rank) wires[k][r] = Slot::peek(inbox(r) + place(slot, k));
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
      Accumulator<E, kOp, kStreamWidth, kRanks> total(
          Slot::data(wires[k][0]));  // in rank order on every rank
#pragma unroll
      for (int r = 1; r < kRanks; ++r) {
        total.add(Slot::data(wires[k][r]));
      }
      const Data result = total.result(p_.scale);
      if constexpr (kWhole) {
        store_whole(p_.out + at(i), result);
      } else {
        store_packet<Stored, kStreamWidth>(p_.out, at(i), p_.bytes, p_.aligned, result);
      }
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        if (r != p_.rank) Slot::taken(inbox(r) + place(slot, k));
      }
    }
    return true;
  }
  [[nodiscard]] __device__ __forceinline__ std::byte* inbox(int r) const {
    return p_.inbox + static_cast<unsigned>(r) * p_.rank_stride;
  }

  /// Where a packet lies in the message.
  [[nodiscard]] __device__ __forceinline__ std::size_t at(unsigned packet) const {
    return begin_ + std::size_t{packet} * kStreamWidth;
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
};

template <class E, Op kOp>
__device__ __forceinline__ void streaming_one_shot(const StreamParams& params) {
  using Kernel = StreamingOneShot<E, kOp>;
  __shared__ typename Kernel::Progress progress;
  Kernel(params, progress).run();
}

}  // namespace onehop::cuda
