// SPDX-License-Identifier: Apache-2.0
// Streaming one-shot between 2 ranks: each sends the other one its input, or the other one's block of it (stream.cuh), and
// reduces or stores what it receives while it still sends. Integers, and whatever is not reduced, travel with escapes
// (wire/escaped.cuh).
//
// Between more ranks, an exchange is one of these for every pair of them: a rank has a row of blocks for each peer, which uses
// the rings and credits of that pair only.
//
// While a thread waits for chunk t, it has sent chunk t + 1 and is loading chunk t + 2. So an all-reduce reads its input once,
// and the link is busy while data is added. It sends chunk t + 1 only when it has cleared chunk t - 1. So when all warps of
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

enum class OneShot {
  all_reduce,  ///< a rank reduces what it has sent, without loading it again
  reduce,      ///< reduce-scatters, and reduces in one direction (one_way.cuh): it reduces p.own
  exchange,    ///< what is not reduced: it stores what it receives, and copies p.own to p.own_out
};

/// E: any type in exchanges. kRanks: 2, or in exchanges kMaxDevices for any number. kOps: of reductions.
template <OneShot kWhat, class E, int kRanks = 2, Ops kOps = Ops::sum>
class StreamingOneShot : public Stream<2, kOneShotLag, (kRanks > 2)> {
 public:
  using Base = Stream<2, kOneShotLag, (kRanks > 2)>;
  __device__ __forceinline__ StreamingOneShot(const StreamParams& p, typename Base::Progress& progress)
      : Base(p, progress, 1) {}

  __device__ __forceinline__ void run() {
    if (threadIdx.x >= p_.movers) return exchange_credits(kRanks == 2 ? Base::kAllOthers : pair_of(p_).peer);
    // Only the last block can have a packet that is not whole. The others' loop has no branches around loads.
    if (blockIdx.x * p_.slice + packets_ > p_.whole) return move_ragged(p_, progress_);
    move<true>();
  }

 protected:
  using Base::await_credit, Base::cleared, Base::exchange_credits, Base::settle;
  using Base::begin_, Base::p_, Base::packets_, Base::progress_, Base::ring_;
  static constexpr bool kExchanges = kWhat == OneShot::exchange;
  static constexpr bool kLoadsOwn = kWhat != OneShot::all_reduce;
  using Slot = std::conditional_t<kExchanges, Escaped, StreamWire<E>>;
  using Data = typename Slot::Data;
  using Wire = typename Slot::Wire;
  using Stored = typename E::Stored;
  static_assert(kRanks == 2 || kExchanges);

  /// With whom the block exchanges packets.
  struct Pair {
    const std::byte* in;
    std::byte* out;
    std::byte* inbox;   ///< the own rings, parity 0 and block 0
    std::byte* outbox;  ///< the peer's
    int peer;
  };
  [[nodiscard]] static __device__ __forceinline__ Pair pair_of(const StreamParams& p) {
    if constexpr (kRanks == 2) {
      return {p.in, p.out, p.inbox, p.peer_inbox, 1 - p.rank};
    } else {
      const int step = static_cast<int>(blockIdx.y) + 1;
      const int peer = p.rank + step < p.size ? p.rank + step : p.rank + step - p.size;
      const std::size_t source = peer < p.rank ? peer : peer - 1;
      return {p.in + peer * p.in_stride, p.out + peer * p.out_stride, p.inbox + source * p.rank_stride,
              p.outbox[step], peer};
    }
  }
  /// Whether the block copies p.own: those of the first row do.
  [[nodiscard]] static __device__ __forceinline__ bool copies_own(const StreamParams& p) {
    return p.own_out != nullptr && (kRanks == 2 || blockIdx.y == 0);
  }

  /// Out of line, because its code would slow down the other blocks.
  static __device__ __noinline__ void move_ragged(const StreamParams& p, typename Base::Progress& progress) {
    StreamingOneShot(p, progress).template move<false>();
  }

  /// kWhole: all packets of the block can be loaded and stored whole.
  template <bool kWhole>
  __device__ __forceinline__ void move() {
    const unsigned chunk = p_.movers * kStreamWidth;  // bytes
    const Pair pair = pair_of(p_);
    const std::byte* in = pair.in + begin_ + threadIdx.x * kStreamWidth;
    std::byte* out = pair.out + begin_ + threadIdx.x * kStreamWidth;
    std::byte* inbox = pair.inbox + ring_;
    std::byte* outbox = pair.outbox + ring_;
    int left = static_cast<int>(packets_ - threadIdx.x);  // packets of the slice from this thread's on
    // Keeps the compiler from making addresses after the previous kernel has ended, where it would cost time.
    asm volatile("" : "+l"(in), "+l"(out), "+l"(inbox), "+l"(outbox), "+r"(left));
    wait_for_previous();

    Data own = load<kWhole>(pair_of(p_).in, in, left);  // of chunk t
    const std::uint64_t epoch = device::read_epoch(*p_.counter);
    Data next = load<kWhole>(pair_of(p_).in, in + chunk, ahead(left, 1));  // of chunk t + 1
    if ((epoch & 1) != 0) {
      inbox += p_.parity_stride;
      outbox += p_.parity_stride;
    }
    send(own, outbox, left);
    const std::byte* own_in = p_.own + begin_ + threadIdx.x * kStreamWidth;
    // Between 2 ranks without a branch, which would cost the short calls time.
    const auto of_own = [&](int packets) { return kRanks == 2 || copies_own(p_) ? packets : 0; };
    if constexpr (kLoadsOwn) own = load<kWhole>(p_.own, own_in, of_own(left));
    let_next_start(p_.early);
    const bool failed = device::has_failed(p_.guard);
    settle(epoch);
    if (failed) return give_up(p_, 0);

    in += 2 * chunk;
    unsigned slot = 0;  // of chunk t, in bytes
    // A warp without further packets ends before others of its block. Nobody waits for it to clear the last chunk.
    for (unsigned t = 0; warp_has(left); ++t) {
      const Data later = load<kWhole>(pair_of(p_).in, in, ahead(left, 2));
      Data next_own = next;
      if constexpr (kLoadsOwn) next_own = load<kWhole>(p_.own, own_in += chunk, of_own(ahead(left, 1)));
      in += chunk;
      const unsigned following = slot + chunk == p_.depth * chunk ? 0 : slot + chunk;
      if (warp_has(ahead(left, 1)) && !await_credit(t + 1)) return give_up(p_, t);
      send(next, outbox + following, ahead(left, 1));
      if (!finish<kWhole>(own, out, inbox + slot, left)) return give_up(p_, t);
      cleared(t + 1);
      out += chunk;
      slot = following;
      left = ahead(left, 1);
      own = next_own;
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
  [[nodiscard]] __device__ __forceinline__ Data load(const std::byte* base, const std::byte* in,
                                                     int left) const {
    if constexpr (kWhole) {
      return load_whole_if<kStreamWidth>(left > 0, in);
    } else {
      if (left <= 0) return {};
      const auto at = static_cast<std::size_t>(in - base);
      if constexpr (kExchanges) return load_bytes<kStreamWidth>(base, at, p_.bytes);
      return load_packet<Stored, kStreamWidth>(base, at, p_.bytes, p_.aligned);
    }
  }
  template <bool kWhole>
  __device__ __forceinline__ void store(std::byte* base, std::byte* out, const Data& data) const {
    const auto at = static_cast<std::size_t>(out - base);
    if constexpr (kWhole) {
      store_whole(out, data);
    } else if constexpr (kExchanges) {
      store_bytes<kStreamWidth>(base, at, p_.bytes, data);
    } else {
      store_packet<Stored, kStreamWidth>(base, at, p_.bytes, p_.aligned, data);
    }
  }
  __device__ __forceinline__ void send(const Data& data, std::byte* to, int left) const {
    if (left <= 0) return;
    const Wire wire = Slot::wire(data);
    Slot::send(to, wire);
    if constexpr (Slot::kEscapes) {
      if (Slot::has_escape(wire)) Base::send_escapes(p_, pair_of(p_).outbox, to, Slot::byte_of(data));
    }
  }
  /// Copies the packet of p.own if the block does that, waits for the peer's packet, stores it or its reduction, and clears it.
  template <bool kWhole>
  __device__ __forceinline__ bool finish(const Data& own, std::byte* out, std::byte* inbox, int left) const {
    if constexpr (kExchanges) copy_own<kWhole>(own, out - pair_of(p_).out, left);
    Wire wire;
    return await(wire, inbox, left) && take<kWhole>(wire, own, out, inbox, left);
  }
  /// `at`: from the start of the message, in bytes.
  template <bool kWhole>
  __device__ __forceinline__ void copy_own(const Data& own, std::ptrdiff_t at, int left) const {
    if (copies_own(p_) && left > 0) store<kWhole>(p_.own_out, p_.own_out + at, own);
  }
  /// Called by all lanes of a warp: waits for the peer's packets.
  [[nodiscard]] __device__ __forceinline__ bool await(Wire& wire, const std::byte* inbox, int left) const {
    return device::wait_until_all(
        p_.guard, p_.phase,
        [&] {
          if (left > 0) wire = Slot::peek(inbox);
          return left <= 0 || Slot::arrived(wire);
        },
        [&] { return kRanks == 2 ? 2u >> p_.rank : 1u << pair_of(p_).peer; });
  }
  /// Stores the packet that has arrived or its reduction, and clears it.
  template <bool kWhole>
  [[nodiscard]] __device__ __forceinline__ bool take(Wire& wire, const Data& own, std::byte* out,
                                                     std::byte* inbox, int left) const {
    if (left <= 0) return true;
    let_next_start(p_.soon);
    if constexpr (Slot::kEscapes) {
      if (Slot::has_escape(wire)) {
        const unsigned byte = Base::take_escapes(p_, pair_of(p_).inbox, inbox, pair_of(p_).peer);
        if (byte == 0) return false;
        Slot::restore(wire, byte);
      }
    }
    Data result = Slot::data(wire);
    if constexpr (!kExchanges) {
      result = cuda::reduce<E, kOps, kStreamWidth, 2>(2, p_.scale, [&](int r) {
        // Selecting takes time. With 2 ranks, a sum is the same in either order.
        const bool is_own = kOps == Ops::sum ? r == 0 : r == p_.rank;
        return is_own ? own : Slot::data(wire);
      });
    }
    store<kWhole>(pair_of(p_).out, out, result);
    Slot::taken(inbox);
    return true;
  }

  /// The call has failed: fills this thread's packets of the output with NaN, from chunk t on, and copies the own ones.
  /// Static, because a call would force the members of this object into memory.
  static __device__ __noinline__ void give_up(const StreamParams& p, unsigned t) {
    const std::size_t begin = std::size_t{blockIdx.x} * p.slice;
    const std::size_t end = begin + p.slice < p.packets ? begin + p.slice : p.packets;
    for (std::size_t i = begin + std::size_t{t} * p.movers + threadIdx.x; i < end; i += p.movers) {
      const std::size_t at = i * kStreamWidth;
      if (p.poison) store_nan<kStreamWidth>(pair_of(p).out, at, p.bytes);
      if (kExchanges && copies_own(p))
        store_bytes<kStreamWidth>(p.own_out, at, p.bytes, load_bytes<kStreamWidth>(p.own, at, p.bytes));
    }
  }
};

template <OneShot kWhat, class E, int kRanks = 2, Ops kOps = Ops::sum>
__device__ __forceinline__ void streaming_one_shot(const StreamParams& params) {
  using Kernel = StreamingOneShot<kWhat, E, kRanks, kOps>;
  __shared__ typename Kernel::Progress progress;
  Kernel(params, progress).run();
}

}  // namespace onehop::cuda
