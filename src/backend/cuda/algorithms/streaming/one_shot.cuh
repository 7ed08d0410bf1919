// SPDX-License-Identifier: Apache-2.0
// Streaming one-shot all-reduce between 2 ranks: each sends its whole input to the other one (stream.cuh), and reduces what
// it receives while it still sends. Integers travel with escapes (wire/escaped.cuh).
//
// While a thread waits for chunk t, it has sent chunk t + 1 and is loading chunk t + 2. So the input is read once, and
// the link is busy while data is added. It sends chunk t + 1 only when it has cleared chunk t - 1. So when all warps of
// a block have cleared c + 2 chunks, the peers have cleared c.
//
// A kernel of this size starts only when the previous one has ended, so every instruction before the first packet is sent
// costs its full latency, and so does every one between arrival and the end. So there are no divisions, few parameters
// (StreamParams) and few instructions, and a block with packets that are not whole is out of line. Each thread moves one
// packet of a chunk. With two, up to 16 MB take up to 0.2 us longer, and 64 MB and more 0.2 to 0.4% less.
#pragma once

#include "backend/cuda/algorithms/streaming/stream.cuh"
#include "backend/cuda/reduce.cuh"

namespace onehop::cuda {

template <class E, Ops kOps>
class StreamingOneShot : public Stream<2, kOneShotLag> {
 public:
  using Base = Stream<2, kOneShotLag>;
  __device__ __forceinline__ StreamingOneShot(const StreamParams& p, Base::Progress& progress)
      : Base(p, progress, 1) {}

  __device__ __forceinline__ void run() {
    if (threadIdx.x >= p_.movers) return exchange_credits();
    // Only the last block can have a packet that is not whole. The others' loop has no branches around loads.
    if (blockIdx.x * p_.slice + packets_ > p_.whole) return move_ragged(p_, progress_);
    move<true>();
  }

 private:
  using Slot = StreamWire<E>;
  using Data = typename Slot::Data;
  using Wire = typename Slot::Wire;
  using Stored = typename E::Stored;

  /// Out of line, because its code would slow down the other blocks.
  static __device__ __noinline__ void move_ragged(const StreamParams& p, Base::Progress& progress) {
    StreamingOneShot(p, progress).template move<false>();
  }

  /// kWhole: all packets of the block can be loaded and stored whole.
  template <bool kWhole>
  __device__ __forceinline__ void move() {
    const unsigned chunk = p_.movers * kStreamWidth;  // bytes
    const std::byte* in = p_.in + begin_ + threadIdx.x * kStreamWidth;
    std::byte* out = p_.out + begin_ + threadIdx.x * kStreamWidth;
    std::byte* inbox = p_.inbox + ring_;
    std::byte* outbox = p_.peer_inbox + ring_;
    int left = static_cast<int>(packets_ - threadIdx.x);  // packets of the slice from this thread's on
    // Keeps the compiler from making addresses after the previous kernel has ended, where it would cost time.
    asm volatile("" : "+l"(in), "+l"(out), "+l"(inbox), "+l"(outbox), "+r"(left));
    wait_for_previous();

    Data own = load<kWhole>(in, left);  // of chunk t
    const std::uint64_t epoch = device::read_epoch(*p_.counter);
    Data next = load<kWhole>(in + chunk, ahead(left, 1));  // of chunk t + 1
    if ((epoch & 1) != 0) {
      inbox += p_.parity_stride;
      outbox += p_.parity_stride;
    }
    send(own, outbox, left);
    let_next_start(p_.early);
    const bool failed = device::has_failed(p_.guard);
    settle(epoch);
    if (failed) return poison(p_, 0);

    in += 2 * chunk;
    unsigned slot = 0;  // of chunk t, in bytes
    // A warp without further packets ends before others of its block. Nobody waits for it to clear the last chunk.
    for (unsigned t = 0; warp_has(left); ++t) {
      const Data later = load<kWhole>(in, ahead(left, 2));
      in += chunk;
      const unsigned following = slot + chunk == p_.depth * chunk ? 0 : slot + chunk;
      if (warp_has(ahead(left, 1)) && !await_credit(t + 1)) return poison(p_, t);
      send(next, outbox + following, ahead(left, 1));
      if (!finish<kWhole>(own, out, inbox + slot, left)) return poison(p_, t);
      cleared(t + 1);
      out += chunk;
      slot = following;
      left = ahead(left, 1);
      own = next;
      next = later;
    }
  }

  /// The number of packets from this thread's packet of a later chunk on; not positive if it has none there.
  [[nodiscard]] __device__ __forceinline__ int ahead(int left, int chunks) const {
    return left - chunks * static_cast<int>(p_.movers);
  }
  /// Whether the warp has packets left. The same in all lanes.
  [[nodiscard]] static __device__ __forceinline__ bool warp_has(int left) {
    return left + static_cast<int>(threadIdx.x % 32) > 0;
  }

  template <bool kWhole>
  [[nodiscard]] __device__ __forceinline__ Data load(const std::byte* in, int left) const {
    if constexpr (kWhole) {
      return load_whole_if<kStreamWidth>(left > 0, in);
    } else {
      if (left <= 0) return {};
      return load_packet<Stored, kStreamWidth>(p_.in, static_cast<std::size_t>(in - p_.in), p_.bytes,
                                               p_.aligned);
    }
  }
  __device__ __forceinline__ void send(const Data& data, std::byte* to, int left) const {
    if (left <= 0) return;
    const Wire wire = Slot::wire(data);
    Slot::send(to, wire);
    if constexpr (Slot::kEscapes) {
      if (Slot::has_escape(wire)) Base::send_escapes(p_, p_.peer_inbox, to, Slot::byte_of(data));
    }
  }
  /// Waits for the peer's packet, stores the reduction and clears the packet. With 2 ranks, a sum is the same in
  /// either order.
  template <bool kWhole>
  __device__ __forceinline__ bool finish(const Data& own, std::byte* out, std::byte* inbox, int left) const {
    Wire wire;
    const bool came = device::wait_until_all(
        p_.guard, p_.phase,
        [&] {
          if (left > 0) wire = Slot::peek(inbox);
          return left <= 0 || Slot::arrived(wire);
        },
        [&] { return 2u >> p_.rank; });
    if (!came) return false;
    if (left <= 0) return true;
    let_next_start(p_.soon);
    if constexpr (Slot::kEscapes) {
      if (Slot::has_escape(wire)) {
        const unsigned byte = Base::take_escapes(p_, p_.inbox, inbox, 1 - p_.rank);
        if (byte == 0) return false;
        Slot::restore(wire, byte);
      }
    }
    const Data result = cuda::reduce<E, kOps, kStreamWidth, 2>(2, p_.scale, [&](int r) {
      // Selecting takes time.
      const bool is_own = kOps == Ops::sum ? r == 0 : r == p_.rank;
      return is_own ? own : Slot::data(wire);
    });
    if constexpr (kWhole) {
      store_whole(out, result);
    } else {
      store_packet<Stored, kStreamWidth>(p_.out, static_cast<std::size_t>(out - p_.out), p_.bytes, p_.aligned,
                                         result);
    }
    Slot::taken(inbox);
    return true;
  }

  /// The call has failed: fills this thread's packets of the output with NaN, from chunk t on. Static, because a call
  /// would force the members of this object into memory.
  static __device__ __noinline__ void poison(const StreamParams& p, unsigned t) {
    if (!p.poison) return;
    const std::size_t begin = std::size_t{blockIdx.x} * p.slice;
    const std::size_t end = begin + p.slice < p.packets ? begin + p.slice : p.packets;
    for (std::size_t i = begin + std::size_t{t} * p.movers + threadIdx.x; i < end; i += p.movers)
      store_nan<kStreamWidth>(p.out, i * kStreamWidth, p.bytes);
  }
};

template <class E, Ops kOps>
__device__ __forceinline__ void streaming_one_shot(const StreamParams& params) {
  using Kernel = StreamingOneShot<E, kOps>;
  __shared__ typename Kernel::Progress progress;
  Kernel(params, progress).run();
}

}  // namespace onehop::cuda
