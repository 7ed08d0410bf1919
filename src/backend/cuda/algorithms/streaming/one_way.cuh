// SPDX-License-Identifier: Apache-2.0
// Streams in one direction between 2 ranks: reduces, broadcasts, gathers and scatters. One rank only sends, the other one only
// receives. Packets, rings and credits are those of one-shot (one_shot.cuh, stream.cuh).
//
// The rule of two calls needs something in the other direction, too, and that is a credit: where rings are reused, one of
// those that the sender awaits anyway, and otherwise one for no chunks, which says that the receiver's call has begun.
//
// The sender has sent chunk t and is loading chunk t + 2. The receiver looks for chunk t + 1 before it stores chunk t.
#pragma once

#include "backend/cuda/algorithms/streaming/one_shot.cuh"

namespace onehop::cuda {

/// kWhat: reduce or exchange. The rank whose p.in is null receives. In an exchange, a rank with p.own_out copies p.own there.
template <OneShot kWhat, class E, Ops kOps = Ops::sum>
class StreamingOneWay : public StreamingOneShot<kWhat, E, 2, kOps> {
 public:
  using Base = StreamingOneShot<kWhat, E, 2, kOps>;
  using Base::Base;

  __device__ __forceinline__ void run() {
    if (threadIdx.x >= p_.movers)
      return exchange_credits(Base::kAllOthers, /*sends=*/p_.in != nullptr, /*receives=*/p_.in == nullptr);
    if (blockIdx.x * p_.slice + packets_ > p_.whole) return move_ragged(p_, progress_);
    move<true>();
  }

 private:
  using Base::ahead, Base::await, Base::await_credit, Base::cleared, Base::copies_own, Base::exchange_credits;
  using Base::begin_, Base::p_, Base::packets_, Base::progress_, Base::ring_;
  using Base::give_up, Base::settle, Base::send, Base::warp_has;
  using typename Base::Data, typename Base::Slot, typename Base::Wire;
  static constexpr bool kExchanges = kWhat == OneShot::exchange;

  /// Out of line, because its code would slow down the other blocks.
  static __device__ __noinline__ void move_ragged(const StreamParams& p, typename Base::Progress& progress) {
    StreamingOneWay(p, progress).template move<false>();
  }
  template <bool kWhole>
  __device__ __forceinline__ void move() {
    if (p_.in != nullptr) {
      send_all<kWhole>();
    } else {
      receive_all<kWhole>();
    }
  }

  template <bool kWhole>
  __device__ __forceinline__ void send_all() {
    const unsigned chunk = p_.movers * kStreamWidth;  // bytes
    std::size_t at = begin_ + threadIdx.x * kStreamWidth;
    const std::byte* in = p_.in + at;
    std::byte* outbox = p_.peer_inbox + ring_;
    int left = static_cast<int>(packets_ - threadIdx.x);  // packets of the slice from this thread's on
    // As in one-shot: addresses are made before the previous kernel has ended.
    asm volatile("" : "+l"(in), "+l"(outbox), "+r"(left));
    wait_for_previous();

    const Data first = load<kWhole>(p_.in, in, left);
    const std::uint64_t epoch = device::read_epoch(*p_.counter);
    Data next = load<kWhole>(p_.in, in + chunk, ahead(left, 1));
    if ((epoch & 1) != 0) outbox += p_.parity_stride;
    send(first, outbox, left);
    Data own = load_own<kWhole>(at, left);
    let_next_start(p_.early);
    const bool failed = device::has_failed(p_.guard);
    settle(epoch);
    if (failed) return give_up(p_, 0);

    in += 2 * chunk;
    unsigned slot = 0;  // of chunk t, in bytes
    for (unsigned t = 0; warp_has(left); ++t) {
      const Data later = load<kWhole>(p_.in, in, ahead(left, 2));
      const Data next_own = load_own<kWhole>(at + chunk, ahead(left, 1));
      in += chunk;
      slot = slot + chunk == p_.depth * chunk ? 0 : slot + chunk;
      if (warp_has(ahead(left, 1)) && !await_credit(t + 1)) return give_up(p_, t);
      send(next, outbox + slot, ahead(left, 1));
      if constexpr (kExchanges) Base::template copy_own<kWhole>(own, at, left);
      at += chunk;
      left = ahead(left, 1);
      own = next_own;
      next = later;
    }
    await_begin(epoch);
  }

  template <bool kWhole>
  __device__ __forceinline__ void receive_all() {
    const unsigned chunk = p_.movers * kStreamWidth;  // bytes
    std::size_t at = begin_ + threadIdx.x * kStreamWidth;
    std::byte* out = p_.out + at;
    std::byte* inbox = p_.inbox + ring_;
    int left = static_cast<int>(packets_ - threadIdx.x);
    asm volatile("" : "+l"(out), "+l"(inbox), "+r"(left));
    wait_for_previous();

    Data own = load_own<kWhole>(at, left);
    const std::uint64_t epoch = device::read_epoch(*p_.counter);
    say_begun(epoch);
    if ((epoch & 1) != 0) inbox += p_.parity_stride;
    Wire next = look(inbox, left);
    let_next_start(p_.early);
    const bool failed = device::has_failed(p_.guard);
    settle(epoch);
    if (failed) return give_up(p_, 0);

    unsigned slot = 0;
    for (unsigned t = 0; warp_has(left); ++t) {
      const Data next_own = load_own<kWhole>(at + chunk, ahead(left, 1));
      const unsigned following = slot + chunk == p_.depth * chunk ? 0 : slot + chunk;
      Wire wire = next;
      next = look(inbox + following, ahead(left, 1));
      if constexpr (kExchanges) Base::template copy_own<kWhole>(own, at, left);
      const bool all = __all_sync(0xffffffff, left <= 0 || Slot::arrived(wire));
      if (!all && !await(wire, inbox + slot, left)) return give_up(p_, t);
      if (!Base::template take<kWhole>(wire, own, out, inbox + slot, left)) return give_up(p_, t);
      cleared(t + 1);
      at += chunk;
      out += chunk;
      slot = following;
      left = ahead(left, 1);
      own = next_own;
    }
  }

  template <bool kWhole>
  [[nodiscard]] __device__ __forceinline__ Data load(const std::byte* base, const std::byte* in,
                                                     int left) const {
    return Base::template load<kWhole>(base, in, left);
  }
  /// The packet of p.own that is copied or reduced. `at`: from the start of the message, in bytes.
  template <bool kWhole>
  [[nodiscard]] __device__ __forceinline__ Data load_own(std::size_t at, int left) const {
    const bool needed = kExchanges ? copies_own(p_) : p_.in == nullptr;
    return load<kWhole>(p_.own, p_.own + at, needed ? left : 0);
  }
  /// What is in a slot, whether it has arrived or not.
  [[nodiscard]] static __device__ __forceinline__ Wire look(const std::byte* inbox, int left) {
    Wire wire{};
    if (left > 0) wire = Slot::peek(inbox);
    return wire;
  }

  /// One thread of the receiver says that the call has begun, and one of the sender waits for that, unless their block exchanges
  /// credits, which say so, too.
  __device__ __forceinline__ void say_begun(std::uint64_t epoch) const {
    // relaxed.sys: pairs with the load in await_begin() on the peer. It publishes nothing: what this rank did in earlier calls
    // was performed when this kernel began.
    if (is_witness()) device::store_relaxed(&p_.credits[1 - p_.rank][0].from[p_.rank], epoch << kCreditBits);
  }
  __device__ __forceinline__ void await_begin(std::uint64_t epoch) const {
    if (!is_witness()) return;
    const std::uint64_t* const word = &p_.credits[p_.rank][0].from[1 - p_.rank];
    // relaxed.sys: pairs with the store in say_begun(). A failure is recorded. Everything has been sent.
    (void)device::wait_until(p_.guard, 1 - p_.rank, p_.phase,
                             [=] { return device::load_relaxed(word) >= epoch << kCreditBits; });
  }
  [[nodiscard]] __device__ __forceinline__ bool is_witness() const {
    return blockIdx.x == 0 && threadIdx.x == 0 && packets_ <= p_.depth * p_.movers;
  }
};

template <OneShot kWhat, class E, Ops kOps = Ops::sum>
__device__ __forceinline__ void streaming_one_way(const StreamParams& params) {
  using Kernel = StreamingOneWay<kWhat, E, kOps>;
  __shared__ typename Kernel::Progress progress;
  Kernel(params, progress).run();
}

}  // namespace onehop::cuda
