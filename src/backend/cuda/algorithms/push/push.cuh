// SPDX-License-Identifier: Apache-2.0
// All-reduce and reduce-scatter over slots whose words show by themselves whether they have arrived
// (wire/slots.cuh). One thread handles packet i from the input to the output and never waits
// for another thread's data. So in-place calls work.
//
// One-shot: every rank sends its whole input to every other rank, and each rank reduces what it receives.
// Two-shot: the message is cut into one piece per rank. Every rank sends each rank its piece; that rank
// reduces the piece and sends the result to all others.
// Reduce-scatter: the first half of two-shot.
//
// A rank sends everything it can before it waits for anything, because the time on the links dominates.
//
// A small call has one packet per thread and few warps. Then every instruction between the end of the
// previous kernel and the sending costs its full latency, and so does every one between arrival and the end.
// So all addresses are computed before the start (Position), and rare cases are out of line.
//
// One-shot also carries a list of messages in one launch (PushListParams). Lists differ only in where
// packets are loaded from and stored to (MessageList), so lists and single messages share slots and epochs.
#pragma once

#include <bit>

#include "backend/cuda/algorithms/push/push.h"
#include "backend/cuda/reduce.cuh"
#include "backend/cuda/sync/call.cuh"
#include "backend/cuda/wire/slots.cuh"
#include "backend/cuda/wire/take_from_all.cuh"

namespace onehop::cuda {

/// Where in the user's memory the packets of a launch are loaded from and stored to. Messages are numbered;
/// this class has one. Each value has its own accessor, read only when needed, to keep register lifetimes
/// short.
class OneMessage {
 public:
  using Params = PushParams;
  __device__ __forceinline__ explicit OneMessage(const Params& p) : p_(p) {}

  /// The message that contains packet i.
  [[nodiscard]] __device__ __forceinline__ unsigned find(unsigned /*i*/) const { return 0; }
  /// The first packet of a message.
  [[nodiscard]] __device__ __forceinline__ unsigned first(unsigned /*message*/) const { return 0; }
  [[nodiscard]] __device__ __forceinline__ const std::byte* in(unsigned /*message*/) const { return p_.in; }
  [[nodiscard]] __device__ __forceinline__ std::byte* out(unsigned /*message*/) const { return p_.out; }
  [[nodiscard]] __device__ __forceinline__ std::size_t bytes(unsigned /*message*/) const { return p_.bytes; }
  /// Whether packets of kWidth bytes can be loaded and stored whole (alignment).
  template <int kWidth>
  [[nodiscard]] __device__ __forceinline__ bool aligned(unsigned /*message*/) const {
    return p_.aligned;
  }

 private:
  const Params& p_;
};

/// The same for a list of messages.
class MessageList {
 public:
  using Params = PushListParams;
  __device__ __forceinline__ explicit MessageList(const Params& p) : p_(p) {}

  [[nodiscard]] __device__ __forceinline__ unsigned find(unsigned i) const {
    static_assert(std::has_single_bit(kMaxFused));
    unsigned message = 0;
#pragma unroll
    for (unsigned step = kMaxFused / 2; step != 0; step /= 2) {
      if (p_.first[message + step] <= i) message += step;
    }
    return message;
  }
  [[nodiscard]] __device__ __forceinline__ unsigned first(unsigned message) const {
    return p_.first[message];
  }
  [[nodiscard]] __device__ __forceinline__ const std::byte* in(unsigned message) const {
    return p_.messages[message].in;
  }
  [[nodiscard]] __device__ __forceinline__ std::byte* out(unsigned message) const {
    return p_.messages[message].out;
  }
  [[nodiscard]] __device__ __forceinline__ std::size_t bytes(unsigned message) const {
    return p_.messages[message].bytes;
  }
  template <int kWidth>
  [[nodiscard]] __device__ __forceinline__ bool aligned(unsigned message) const {
    return (reinterpret_cast<std::uintptr_t>(in(message)) | reinterpret_cast<std::uintptr_t>(out(message))) %
               kWidth ==
           0;
  }

 private:
  const Params& p_;
};

/// kRanks: the number of ranks, or kMaxDevices for any number up to that.
template <template <class> class Transport, class E, Ops kOps, int kRanks, class Messages = OneMessage>
class Push {
 public:
  using Params = typename Messages::Params;

  __device__ __forceinline__ explicit Push(const Params& p) : p_(p), rank_(p.rank) {}

  __device__ __forceinline__ void one_shot() {
    const unsigned i = first();
    Position position(p_, i);
    const bool more = i + threads() < p_.packets;
    position.pin();
    wait_for_previous();
    // Loads the data first: this load and that of the epoch do not depend on each other.
    Data own = load_whole_if<Slot::kWidth>(position.kind == Position::whole, position.in);
    const std::uint64_t epoch = device::read_epoch(*p_.counter);
    const bool failed = device::has_failed(p_.guard);
    if (position.kind == Position::ragged) own = load_ragged(position);

    const Slot slot(epoch);
    const std::size_t side = parity(epoch);
    send(position, side, slot.wire(own));
    if (more) send_rest(i, slot, side);
    let_next_start(p_.early);
    settle(*p_.counter, epoch);
    if (Slot::kScrubs && device::scrub_due(epoch)) scrub(p_, epoch);
    if (failed || !finish(slot, position, side, own) || (more && !finish_rest(i, slot, side)))
      poison_messages(p_);
  }

  __device__ __forceinline__ void two_shot() {
    const unsigned packets = p_.packets;
    wait_for_previous();
    const std::uint64_t epoch = device::read_epoch(*p_.counter);
    const bool failed = device::has_failed(p_.guard);
    const Slot slot(epoch);
    const std::size_t side = parity(epoch);
    if (kRanks > 2 && p_.by_peer) {
      // Sends everything to one peer before the next. When all ranks send to their neighbor first, and then
      // to the one after, no two send to the same receiver at once.
#pragma unroll
      for (int step = 1; step < kRanks; ++step) {
        if (step < ranks()) scatter(slot, piece(right(step)), p_.outbox[step] + side);
      }
    } else {
      for (unsigned i = first(); i < packets; i += threads()) {
        Data data[kRanks];
#pragma unroll
        for (int step = 1; step < kRanks; ++step) {
          if (step < ranks()) data[step] = load(piece(right(step)) + offset_in_message(i));
        }
#pragma unroll
        for (int step = 1; step < kRanks; ++step) {
          if (step < ranks()) Slot::send(p_.outbox[step] + side + offset(i), slot.wire(data[step]));
        }
      }
    }
    let_next_start(p_.early);
    settle(*p_.counter, epoch);
    if (failed) return poison_pieces(p_, p_.bytes);
    for (unsigned i = first(); i < packets; i += threads()) {
      Wire wires[kRanks];
      expect(wires, slot, load(piece(rank_) + offset_in_message(i)));
      std::byte* inbox[kRanks];
      find(inbox, side + offset(i));
      if (!take(slot, inbox, wires)) return poison_pieces(p_, p_.bytes);
      const Data sum = combined(wires);
      const Wire wire = slot.wire(sum);
#pragma unroll
      for (int step = 1; step < kRanks; ++step) {
        if (step < ranks()) Slot::send(p_.outbox[step] + side + p_.phase_stride + offset(i), wire);
      }
      store(piece(rank_) + offset_in_message(i), sum);
      taken(inbox);
    }
    for (unsigned i = first(); i < packets; i += threads()) {
      Wire wires[kRanks];
      expect(wires, slot, {});
      std::byte* inbox[kRanks];
      find(inbox, side + p_.phase_stride + offset(i));
      if (!take(slot, inbox, wires)) return poison_pieces(p_, p_.bytes);
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        if (r < ranks() && r != rank_) store(piece(r) + offset_in_message(i), Slot::data(wires[r]));
      }
      taken(inbox);
    }
  }

  /// Reduce-scatter of blocks that are p_.piece apart.
  __device__ __forceinline__ void reduce_scatter() {
    wait_for_previous();
    const std::uint64_t epoch = device::read_epoch(*p_.counter);
    const bool failed = device::has_failed(p_.guard);
    const Slot slot(epoch);
    const std::size_t side = parity(epoch);
#pragma unroll
    for (int step = 1; step < kRanks; ++step) {
      if (step < ranks()) scatter(slot, piece(right(step)), p_.outbox[step] + side);
    }
    let_next_start(p_.early);
    settle(*p_.counter, epoch);
    if (Slot::kScrubs && device::scrub_due(epoch)) scrub(p_, epoch);
    if (failed) return poison_pieces(p_, p_.block);
    for (unsigned i = first(); i < p_.packets; i += threads()) {
      Wire wires[kRanks];
      expect(wires, slot, load(piece(rank_) + offset_in_message(i)));
      std::byte* inbox[kRanks];
      find(inbox, side + offset(i));
      if (!take(slot, inbox, wires)) return poison_pieces(p_, p_.block);
      store_packet<Stored, Slot::kWidth>(p_.out, offset_in_message(i), p_.block, p_.aligned, combined(wires));
      taken(inbox);
    }
  }

 private:
  using Slot = Transport<E>;
  using Data = typename Slot::Data;
  using Wire = typename Slot::Wire;
  using Stored = typename E::Stored;

  /// One packet: its position in the user's memory, and its addresses in the slots of parity 0.
  struct Position {
    enum Kind : unsigned { none, whole, ragged };

    unsigned message;
    std::size_t at;  ///< offset in the message
    unsigned kind;
    const std::byte* in;
    std::byte* out;
    std::byte* inbox[kRanks];
    std::byte* outbox[kRanks];

    __device__ __forceinline__ Position(const Params& p, unsigned i)
        : message(Messages(p).find(i)),
          at(Push::offset_in_message(i - Messages(p).first(message))),
          kind(i >= p.packets ? none
               : Messages(p).template aligned<Slot::kWidth>(message) &&
                       at + Slot::kWidth <= Messages(p).bytes(message)
                   ? whole
                   : ragged),
          in(Messages(p).in(message) + at),
          out(Messages(p).out(message) + at) {
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        inbox[r] = p.inbox + static_cast<unsigned>(r) * p.rank_stride + offset(i);
        outbox[r] = p.outbox[r] + offset(i);
      }
    }
    /// Forces all addresses to be computed here and kept in registers. Otherwise the compiler computes each
    /// where it is used. None of them is null, so the conditional exit is never taken.
    __device__ __forceinline__ void pin() {
      asm volatile("" : "+r"(kind));
      std::uint64_t all = kind;
      const auto keep = [&all](auto*& address) {
        asm volatile("" : "+l"(address));
        all |= reinterpret_cast<std::uint64_t>(address);
      };
      keep(in);
      keep(out);
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        keep(inbox[r]);
        keep(outbox[r]);
      }
      asm volatile("{ .reg .pred p; setp.eq.u64 p, %0, 0; @p exit; }" ::"l"(all));
    }
  };
  [[nodiscard]] __device__ __forceinline__ Data load(const Position& position) const {
    if (position.kind == Position::whole) return load_whole<Slot::kWidth>(position.in);
    return load_ragged(position);
  }
  [[nodiscard]] __device__ __forceinline__ Data load_ragged(const Position& position) const {
    const Messages all(p_);
    return cuda::load_ragged<Stored, Slot::kWidth>(all.in(position.message), position.at,
                                                   all.bytes(position.message));
  }
  __device__ __forceinline__ void send(const Position& position, std::size_t side, const Wire& wire) const {
    if (position.kind == Position::none) return;
#pragma unroll
    for (int step = 1; step < kRanks; ++step) {
      if (step < ranks()) Slot::send(position.outbox[step] + side, wire);
    }
  }
  /// Waits for every peer's packet and stores the result.
  __device__ __forceinline__ bool finish(const Slot& slot, const Position& position, std::size_t side,
                                         const Data& own) const {
    if (position.kind == Position::none) return true;
    std::byte* inbox[kRanks];
#pragma unroll
    for (int r = 0; r < kRanks; ++r) inbox[r] = position.inbox[r] + side;
    Wire wires[kRanks];
    expect(wires, slot, own);
    if (!take(slot, inbox, wires)) return false;
    let_next_start(true);
    const Data result = combined(wires);
    if (position.kind == Position::whole) {
      store_whole(position.out, result);
    } else {
      const Messages all(p_);
      store_ragged<Stored, Slot::kWidth>(all.out(position.message), position.at, all.bytes(position.message),
                                         result);
    }
    taken(inbox);
    return true;
  }

  /// Sends a piece of the input. One packet at a time is faster with one peer, two at a time with more.
  __device__ __forceinline__ void scatter(const Slot& slot, std::size_t from, std::byte* to) const {
    constexpr bool kPairs = kRanks > 2;
    for (unsigned i = first(); i < p_.packets; i += (kPairs ? 2 : 1) * threads()) {
      const unsigned j = i + threads();
      const Data one = load(from + offset_in_message(i));
      if (kPairs && j < p_.packets) {
        const Data other = load(from + offset_in_message(j));
        Slot::send(to + offset(i), slot.wire(one));
        Slot::send(to + offset(j), slot.wire(other));
      } else {
        Slot::send(to + offset(i), slot.wire(one));
      }
    }
  }

  /// Sends this thread's packets after the first one.
  __device__ __forceinline__ void send_rest(unsigned i, const Slot& slot, std::size_t side) const {
    while ((i += threads()) < p_.packets) {
      const Position position(p_, i);
      send(position, side, slot.wire(load(position)));
    }
  }
  __device__ __forceinline__ bool finish_rest(unsigned i, const Slot& slot, std::size_t side) const {
    while ((i += threads()) < p_.packets) {
      const Position position(p_, i);
      if (!finish(slot, position, side, load(position))) return false;
    }
    return true;
  }

  /// The call has failed: fills this thread's packets of the output with NaN. One-shot.
  static __device__ __noinline__ void poison_messages(const Params& p) {
    if (!p.poison) return;
    const Messages all(p);
    for (unsigned i = first(); i < p.packets; i += threads()) {
      const unsigned message = all.find(i);
      store_nan<Slot::kWidth>(all.out(message), offset_in_message(i - all.first(message)),
                              all.bytes(message));
    }
  }
  /// The same for an output of `end` bytes: of all pieces in two-shot, of one block in reduce-scatter.
  static __device__ __noinline__ void poison_pieces(const PushParams& p, std::size_t end) {
    if (!p.poison) return;
    for (unsigned i = first(); i < p.packets; i += threads()) {
      std::size_t at = offset_in_message(i);
      for (int r = 0; r < p.size && at < end; ++r, at += p.piece) store_nan<Slot::kWidth>(p.out, at, end);
    }
  }

  [[nodiscard]] __device__ __forceinline__ int ranks() const {
    return kRanks < kMaxDevices ? kRanks : p_.size;
  }
  /// The step-th rank to the right. Every rank begins with its neighbor, so that no link is everyone's
  /// first.
  [[nodiscard]] __device__ __forceinline__ int right(int step) const {
    return rank_ + step < ranks() ? rank_ + step : rank_ + step - ranks();
  }
  [[nodiscard]] static __device__ __forceinline__ unsigned first() {
    return blockIdx.x * blockDim.x + threadIdx.x;
  }
  [[nodiscard]] static __device__ __forceinline__ unsigned threads() {
    return gridDim.x * blockDim.x;
  }
  [[nodiscard]] static __device__ __forceinline__ std::size_t offset_in_message(unsigned i) {
    return std::size_t{i} * Slot::kWidth;
  }
  [[nodiscard]] static __device__ __forceinline__ std::size_t offset(unsigned i) {
    return std::size_t{i} * Slot::kStride;
  }
  [[nodiscard]] __device__ __forceinline__ std::size_t piece(int r) const {
    return static_cast<unsigned>(r) * p_.piece;
  }
  [[nodiscard]] __device__ __forceinline__ std::size_t parity(std::uint64_t epoch) const {
    return (epoch & 1) != 0 ? p_.parity_stride : 0;
  }
  [[nodiscard]] __device__ __forceinline__ Data load(std::size_t at) const {
    return load_packet<Stored, Slot::kWidth>(p_.in, at, p_.bytes, p_.aligned);
  }
  __device__ __forceinline__ void store(std::size_t at, const Data& data) const {
    store_packet<Stored, Slot::kWidth>(p_.out, at, p_.bytes, p_.aligned, data);
  }

  /// Puts the own packet into the entries of the peers, as a placeholder until theirs arrive.
  static __device__ __forceinline__ void expect(Wire (&wires)[kRanks], const Slot& slot, const Data& own) {
#pragma unroll
    for (int r = 0; r < kRanks; ++r) wires[r] = slot.wire(own);
  }
  __device__ __forceinline__ void find(std::byte* (&inbox)[kRanks], std::size_t at) const {
#pragma unroll
    for (int r = 0; r < kRanks; ++r) inbox[r] = p_.inbox + static_cast<unsigned>(r) * p_.rank_stride + at;
  }
  /// Waits for a packet from every peer.
  __device__ __forceinline__ bool take(const Slot& slot, std::byte* const (&inbox)[kRanks],
                                       Wire (&wires)[kRanks]) const {
    return take_from_all(
        p_.guard, p_.phase, slot, wires, [&](int r) { return r < ranks() && r != rank_; },
        [&](int r) { return inbox[r]; });
  }
  __device__ __forceinline__ void taken(std::byte* const (&inbox)[kRanks]) const {
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      if (r < ranks() && r != rank_) Slot::taken(inbox[r]);
    }
  }

  /// Combines in rank order on every rank.
  [[nodiscard]] __device__ __forceinline__ Data combined(const Wire (&wires)[kRanks]) const {
    return cuda::reduce<E, kOps, Slot::kWidth, kRanks>(ranks(), p_.scale,
                                                       [&](int r) { return Slot::data(wires[r]); });
  }

  /// Stores this epoch in all flags of this rank's slots behind the message.
  static __device__ __noinline__ void scrub(const PushParams& p, std::uint64_t epoch) {
    const std::size_t side = (epoch & 1) != 0 ? p.parity_stride : 0;
    for (int step = 1; step < p.size; ++step) {
      device::scrub(p.outbox[step] + side, std::size_t{p.packets} * (Slot::kWidth / 4), kLLSlotBytes / 4,
                    static_cast<std::uint32_t>(epoch));
    }
  }

  const Params& p_;
  const int rank_;
};

}  // namespace onehop::cuda
