// SPDX-License-Identifier: Apache-2.0
// Streaming two-shot: all-reduces and reduces. Every rank, but for the root of a reduce, owns a piece of every chunk.
// It receives its piece from all others, reduces it, and sends the result to all others, or to the root only
// (stream.cuh). Integers travel with escapes (wire/escaped.cuh).
//
// A chunk of a block is the pieces of all owners, one after the other. While a thread reduces its packet of chunk t, it
// has sent those of chunk t + 1 to their owners and is loading those of chunk t + 2. It takes the results of a chunk
// only after it has sent the next one, so that it does not wait for a whole round trip.
//
// A thread sends the result of chunk t - 1 only when it has cleared chunk t - 3, and it has cleared chunk t - 1 only
// when it has all results, of which each peer has sent one. In a reduce, only the root has received results; the others
// have received chunk t, which a peer sent when it had cleared chunk t - 3, and they count a chunk as cleared one chunk
// late. So when all warps of a block have cleared c + 2 chunks, the peers have cleared c.
//
// Every rank receives something from every other one in every call, as the rule of two calls demands: data from the
// root, its results, and data between all others.
#pragma once

#include "backend/cuda/algorithms/streaming/stream.cuh"
#include "backend/cuda/reduce.cuh"
#include "backend/cuda/wire/take_from_all.cuh"

namespace onehop::cuda {

template <class E, Ops kOps, int kRanks>
class StreamingTwoShot : public Stream<kRanks, kTwoShotLag> {
 public:
  using Base = Stream<kRanks, kTwoShotLag>;
  __device__ __forceinline__ StreamingTwoShot(const StreamParams& p, typename Base::Progress& progress)
      : Base(p, progress, pieces(p)) {}

  __device__ __forceinline__ void run() {
    if (threadIdx.x >= p_.movers) return exchange_credits();
    // Only the last block can have a packet that is not whole. The others' loop has no branches around loads.
    const bool whole = p_.aligned && begin_ + std::size_t{packets_} * pieces(p_) * kStreamWidth <= p_.bytes;
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
  using Base::await_credit, Base::chunks, Base::cleared, Base::exchange_credits, Base::ranks, Base::settle;
  using Base::begin_, Base::p_, Base::packets_, Base::ring_;
  using Slot = StreamWire<E>;
  using Data = typename Slot::Data;
  using Wire = typename Slot::Wire;
  using Stored = typename E::Stored;
  static constexpr int kPeers = kRanks - 1;

  template <bool kWhole>
  __device__ __forceinline__ void move() {
    const unsigned chunks = this->chunks();
    Data theirs[kPeers];  // of chunk t + 1, for the step-th rank to the right
    load_theirs<kWhole>(theirs, 0);
    const std::uint64_t epoch = device::read_epoch(*p_.counter);
    const bool failed = device::has_failed(p_.guard);
    Data own = load_own<kWhole>(0);
    if ((epoch & 1) != 0) ring_ += p_.parity_stride;
    unsigned slot = 0;  // of chunk t
    unsigned last = 0;  // of chunk t - 1
    send(theirs, 0, slot);
    load_theirs<kWhole>(theirs, 1);
    let_next_start(p_.early);
    settle(epoch);
    if (failed) return poison(p_, 0);
    for (unsigned t = 0; t <= chunks; ++t) {
      const unsigned next = slot + 1 == p_.depth ? 0 : slot + 1;
      if (t + 1 < chunks) {
        if (!await_credit(t + 1)) return poison(p_, t);
        send(theirs, t + 1, next);
        load_theirs<kWhole>(theirs, t + 2);
      }
      if (p_.rank != p_.root) {
        const Data later = load_own<kWhole>(t + 1);
        if (!reduce<kWhole>(own, t, slot)) return poison(p_, t);
        own = later;
      }
      if (t != 0) {
        if (gets_all() && !gather<kWhole>(t - 1, last)) return poison(p_, t);
        cleared(t);
      }
      last = slot;
      slot = next;
    }
  }

  template <bool kWhole>
  [[nodiscard]] __device__ __forceinline__ Data load(bool when, std::size_t from) const {
    if constexpr (kWhole) {
      return load_whole_if<kStreamWidth>(when, p_.in + from);
    } else {
      Data data{};
      if (when) data = load_packet<Stored, kStreamWidth>(p_.in, from, p_.bytes, p_.aligned);
      return data;
    }
  }
  template <bool kWhole>
  __device__ __forceinline__ void load_theirs(Data (&theirs)[kPeers], unsigned t) const {
#pragma unroll
    for (int k = 0; k < kPeers; ++k) {
      if (k < ranks() - 1) theirs[k] = load<kWhole>(has_packet(t) && owns(right(k + 1)), at(right(k + 1), t));
    }
  }
  template <bool kWhole>
  [[nodiscard]] __device__ __forceinline__ Data load_own(unsigned t) const {
    return load<kWhole>(has_packet(t) && owns(p_.rank), at(p_.rank, t));
  }
  __device__ __forceinline__ void send(const Data (&theirs)[kPeers], unsigned t, unsigned slot) const {
    if (!has_packet(t)) return;
#pragma unroll
    for (int k = 0; k < kPeers; ++k) {
      if (k < ranks() - 1 && owns(right(k + 1)))
        send(theirs[k], Slot::wire(theirs[k]), p_.outbox[k + 1], place(slot));
    }
  }
  __device__ __forceinline__ void send(const Data& data, const Wire& wire, std::byte* rings,
                                       std::size_t at) const {
    Slot::send(rings + at, wire);
    if constexpr (Slot::kEscapes) {
      if (Slot::has_escape(wire)) Base::send_escapes(p_, rings, rings + at, Slot::byte_of(data));
    }
  }

  /// Waits for every peer's packet of the own piece, and sends their reduction to all that get it.
  template <bool kWhole>
  __device__ __forceinline__ bool reduce(const Data& own, unsigned t, unsigned slot) const {
    if (!has_packet(t)) return true;
    Wire wires[kRanks];
#pragma unroll
    for (int r = 0; r < kRanks; ++r) wires[r] = Slot::wire(own);
    if (!take(own, wires, 0, place(slot))) return false;
    const Data result = cuda::reduce<E, kOps, kStreamWidth, kRanks>(
        ranks(), p_.scale, [&](int r) { return Slot::data(wires[r]); });
    const Wire wire = Slot::wire(result);
#pragma unroll
    for (int k = 0; k < kPeers; ++k) {
      if (k < ranks() - 1 && (p_.root == kNoRoot || right(k + 1) == p_.root))
        send(result, wire, p_.outbox[k + 1] + p_.phase_stride, place(slot));
    }
    if (p_.root == kNoRoot) store<kWhole>(at(p_.rank, t), result);
    taken(place(slot));
    return true;
  }
  /// Waits for every peer's result, and stores it.
  template <bool kWhole>
  __device__ __forceinline__ bool gather(unsigned t, unsigned slot) const {
    if (!has_packet(t)) return true;
    Wire wires[kRanks];
#pragma unroll
    for (int r = 0; r < kRanks; ++r) wires[r] = Slot::wire(Data{});
    const std::size_t results = p_.phase_stride + place(slot);
    if (!take({}, wires, p_.phase_stride, place(slot))) return false;
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      if (r < ranks() && r != p_.rank) store<kWhole>(at(r, t), Slot::data(wires[r]));
    }
    taken(results);
    return true;
  }

  /// Waits for a packet from every peer. `own`: what the own entry contains already.
  __device__ __forceinline__ bool take(const Data& own, Wire (&wires)[kRanks], std::size_t rings,
                                       std::size_t at) const {
    const bool came = take_from_all(
        p_.guard, p_.phase, Slot(), wires, [&](int r) { return r < ranks() && r != p_.rank; },
        [&](int r) { return inbox(r) + rings + at; });
    if (!came) return false;
    if constexpr (Slot::kEscapes) {
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        if (r >= ranks() || !Slot::has_escape(wires[r])) continue;
        const unsigned byte = r == p_.rank
                                  ? Slot::byte_of(own)
                                  : Base::take_escapes(p_, inbox(r) + rings, inbox(r) + rings + at, r);
        if (byte == 0) return false;
        Slot::restore(wires[r], byte);
      }
    }
    return true;
  }
  __device__ __forceinline__ void taken(std::size_t from) const {
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      if (r < ranks() && r != p_.rank) Slot::taken(inbox(r) + from);
    }
  }
  template <bool kWhole>
  __device__ __forceinline__ void store(std::size_t to, const Data& data) const {
    if constexpr (kWhole) {
      store_whole(p_.out + to, data);
    } else {
      store_packet<Stored, kStreamWidth>(p_.out, to, p_.bytes, p_.aligned, data);
    }
  }

  /// The call has failed: fills what this thread has not written of the output with NaN, from the results of chunk
  /// t - 1 on. Static, because a call would force the members of this object into memory.
  static __device__ __noinline__ void poison(const StreamParams& p, unsigned t) {
    if (!p.poison) return;
    const std::size_t begin = std::size_t{blockIdx.x} * p.slice;
    const std::size_t end = begin + p.slice < p.packets ? begin + p.slice : p.packets;
    const std::size_t width = std::size_t{pieces(p)} * kStreamWidth;
    for (std::size_t i = begin + std::size_t{t == 0 ? 0 : t - 1} * p.movers; i < end; i += p.movers) {
      const std::size_t length = end - i < p.movers ? end - i : p.movers;
      if (threadIdx.x >= length) return;
      for (unsigned piece = 0; piece < pieces(p); ++piece)
        store_nan<kStreamWidth>(p.out, i * width + (piece * length + threadIdx.x) * kStreamWidth, p.bytes);
    }
  }

  /// Whether this thread has a packet of each piece of chunk t.
  [[nodiscard]] __device__ __forceinline__ bool has_packet(unsigned t) const {
    return t * p_.movers + threadIdx.x < packets_;
  }
  /// Where the packet of a rank's piece of chunk t lies in the message.
  [[nodiscard]] __device__ __forceinline__ std::size_t at(int owner, unsigned t) const {
    const unsigned done = t * p_.movers;
    const unsigned length = packets_ - done < p_.movers ? packets_ - done : p_.movers;
    const auto piece = static_cast<unsigned>(p_.root != kNoRoot && owner > p_.root ? owner - 1 : owner);
    return begin_ + (std::size_t{done} * pieces(p_) + piece * length + threadIdx.x) * kStreamWidth;
  }
  [[nodiscard]] __device__ __forceinline__ std::size_t place(unsigned slot) const {
    return ring_ + slot * p_.movers * kStreamWidth;
  }
  /// The rings of rank r. There are none for the own rank.
  [[nodiscard]] __device__ __forceinline__ std::byte* inbox(int r) const {
    return p_.inbox + static_cast<unsigned>(r < p_.rank ? r : r - 1) * p_.rank_stride;
  }
  [[nodiscard]] __device__ __forceinline__ int right(int step) const {
    return p_.rank + step < ranks() ? p_.rank + step : p_.rank + step - ranks();
  }
  [[nodiscard]] __device__ __forceinline__ bool owns(int rank) const {
    return rank != p_.root;
  }
  [[nodiscard]] __device__ __forceinline__ bool gets_all() const {
    return p_.root == kNoRoot || p_.rank == p_.root;
  }
  [[nodiscard]] static __device__ __forceinline__ unsigned pieces(const StreamParams& p) {
    return static_cast<unsigned>((kRanks < kMaxDevices ? kRanks : p.size) - (p.root == kNoRoot ? 0 : 1));
  }
};

template <class E, Ops kOps, int kRanks>
__device__ __forceinline__ void streaming_two_shot(const StreamParams& params) {
  using Kernel = StreamingTwoShot<E, kOps, kRanks>;
  __shared__ typename Kernel::Progress progress;
  Kernel(params, progress).run();
}

}  // namespace onehop::cuda
