// Passing floating-point data through memory that says by itself whether the data is there.
//
// A mailbox is memory of which every word is kEmpty, all ones, between uses. A sender overwrites words; a
// receiver polls until none of the words it awaits is kEmpty, takes them and puts kEmpty back. Nothing but
// data travels: no flags, no fences, no barrier. All ones is a NaN in every floating-point format, and no
// other value is lost: a NaN with these bits is sent as the format's usual NaN, and every result that is NaN
// is that one anyway (elements.cuh). Integers have no value to spare: they travel otherwise (one_shot.cuh,
// two_shot.cuh).
//
// When may a sender write again? By the rule of call.cuh, a rank that is in the call of epoch e has heard
// from every peer in epoch e - 1, which a peer begins when its call of epoch e - 2 has ended and all its
// stores are performed: so the mailbox of parity e % 2 is empty again. That argument needs the end of a
// kernel between two uses of one parity; calls over mailboxes have one pass.
#pragma once

#include "kernel/cuda/call.cuh"
#include "kernel/cuda/packet.cuh"

namespace onehop::cuda {

inline constexpr std::uint32_t kEmpty = 0xffffffff;

/// Words of the width in which hardware keeps data whole and a NaN of all ones is one value: 8 bytes for f64,
/// whose lower half may be all ones in any number, else 4.
template <class E>
struct Mailbox {
  static constexpr bool kWide = sizeof(typename E::Stored) == 8;
  using Data = Packet<16>;

  /// Replaces what looks empty by the NaN that it is.
  static __device__ __forceinline__ Data sealed(Data data) {
    if constexpr (kWide) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        if ((data.words[i] & data.words[i + 1]) == kEmpty) data.words[i + 1] = 0x7ff80000;
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (data.words[i] == kEmpty) data.words[i] = E::kNanWord;
      }
    }
    return data;
  }

  static __device__ __forceinline__ bool full(const Data& data) {
    if constexpr (kWide) {
      return (data.words[0] & data.words[1]) != kEmpty && (data.words[2] & data.words[3]) != kEmpty;
    } else {
      return data.words[0] != kEmpty && data.words[1] != kEmpty && data.words[2] != kEmpty &&
             data.words[3] != kEmpty;
    }
  }

  /// `data` is sealed. relaxed.sys: each word by itself pairs with its load in peek(); nothing else is
  /// ordered by it.
  static __device__ __forceinline__ void send(std::byte* to, const Data& data) {
    if constexpr (kWide) {
      asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(join(data, 0)),
                   "l"(join(data, 2))
                   : "memory");
    } else {
      asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(data.words[0]),
                   "r"(data.words[1]), "r"(data.words[2]), "r"(data.words[3])
                   : "memory");
    }
  }

  static __device__ __forceinline__ Data peek(const std::byte* from) {
    Data data;
    if constexpr (kWide) {
      std::uint64_t low;
      std::uint64_t high;
      asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                   : "=l"(low), "=l"(high)
                   : "l"(from)
                   : "memory");
      data.words[0] = static_cast<std::uint32_t>(low), data.words[1] = static_cast<std::uint32_t>(low >> 32);
      data.words[2] = static_cast<std::uint32_t>(high),
      data.words[3] = static_cast<std::uint32_t>(high >> 32);
    } else {
      asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(data.words[0]), "=r"(data.words[1]), "=r"(data.words[2]), "=r"(data.words[3])
                   : "l"(from)
                   : "memory");
    }
    return data;
  }

  static __device__ __forceinline__ void clear(std::byte* at) {
    *reinterpret_cast<uint4*>(at) = make_uint4(kEmpty, kEmpty, kEmpty, kEmpty);
  }

 private:
  static __device__ __forceinline__ std::uint64_t join(const Data& data, int i) {
    return data.words[i] | static_cast<std::uint64_t>(data.words[i + 1]) << 32;
  }
};

/// Both algorithms over mailboxes. Every packet of 16 bytes is one thread's on each rank, from the input to
/// the output; threads never wait for one another.
template <class E, Op kOp, int kMaxRanks>
class MailboxAllReduce {
 public:
  __device__ __forceinline__ explicit MailboxAllReduce(const AllReduceParams& p) : p_(p) {}

  __device__ __forceinline__ void one_shot() {
    const unsigned packets = static_cast<unsigned>((p_.bytes + kWidth - 1) / kWidth);
    const unsigned first = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned threads = gridDim.x * blockDim.x;
    enter();
    Data own = first < packets ? load(first) : Data{};
    const Start start = read_start(control());
    parity_ = static_cast<unsigned>(start.epoch & 1);
    if (first < packets) {
      const Data sealed = Box::sealed(own);
      for_peers([&](int to, int) { Box::send(one_shot_slot(to, p_.rank) + offset(first), sealed); });
    }
    if (!settle(start)) return;
    for (unsigned i = first; i < packets; i += threads) {
      if (i != first) {
        own = load(i);
        const Data sealed = Box::sealed(own);
        for_peers([&](int to, int) { Box::send(one_shot_slot(to, p_.rank) + offset(i), sealed); });
      }
      Data data[kMaxRanks];
      if (!take(data, [&](int r) { return one_shot_slot(p_.rank, r) + offset(i); })) return;
      store(i, combined(data, own));
    }
  }

  __device__ __forceinline__ void two_shot() {
    const std::size_t ranks = static_cast<std::size_t>(p_.size);
    const unsigned packets = static_cast<unsigned>(((p_.bytes + ranks - 1) / ranks + kWidth - 1) / kWidth);
    const unsigned first = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned threads = gridDim.x * blockDim.x;
    piece_ = packets;
    enter();
    Data out[kMaxRanks];
    if (first < packets) load_others(out, first);
    const Start start = read_start(control());
    parity_ = static_cast<unsigned>(start.epoch & 1);
    // Everything leaves first: the links are what this takes long for.
    for (unsigned i = first; i < packets; i += threads) {
      if (i != first) load_others(out, i);
      for_peers([&](int to, int step) {
        Box::send(two_shot_slot(to, 0, p_.rank) + offset(i), Box::sealed(out[step]));
      });
    }
    if (!settle(start)) return;
    for (unsigned i = first; i < packets; i += threads) {
      const Data own = load(place(p_.rank, i));
      Data data[kMaxRanks];
      if (!take(data, [&](int r) { return two_shot_slot(p_.rank, 0, r) + offset(i); })) return;
      const Data sum = combined(data, own);  // sealed: a result has no NaN but the usual one
      for_peers([&](int to, int) { Box::send(two_shot_slot(to, 1, p_.rank) + offset(i), sum); });
      store(place(p_.rank, i), sum);
    }
    for (unsigned i = first; i < packets; i += threads) {
      Data data[kMaxRanks];
      if (!take(data, [&](int r) { return two_shot_slot(p_.rank, 1, r) + offset(i); })) return;
#pragma unroll
      for (int r = 0; r < kMaxRanks; ++r) {
        if (r < p_.size && r != p_.rank) store(place(r, i), data[r]);
      }
    }
  }

 private:
  static constexpr unsigned kWidth = 16;
  using Box = Mailbox<E>;
  using Data = Packet<16>;
  using Stored = typename E::Stored;

  [[nodiscard]] __device__ __forceinline__ Control& control() const {
    return reinterpret_cast<SegmentHead*>(p_.segments[p_.rank])->control;
  }
  /// Once per block, when this thread has read the start and sent its first data; false: give up.
  __device__ __forceinline__ bool settle(const Start& start) const {
    if (__syncthreads_or(start.failed ? 1 : 0) != 0) return false;
    if (threadIdx.x == blockDim.x - 1) advance(control(), start, 1);
    return true;
  }

  [[nodiscard]] static __device__ __forceinline__ std::size_t offset(unsigned packet) {
    return std::size_t{packet} * kWidth;
  }
  /// Packet i of rank r's piece, as a packet of the message.
  [[nodiscard]] __device__ __forceinline__ unsigned place(int r, unsigned i) const {
    return static_cast<unsigned>(r) * piece_ + i;
  }
  [[nodiscard]] __device__ __forceinline__ std::byte* one_shot_slot(int on, int src) const {
    return p_.segments[on] + p_.layout.mail_slot(parity_, src);
  }
  [[nodiscard]] __device__ __forceinline__ std::byte* two_shot_slot(int on, unsigned phase, int of) const {
    return p_.segments[on] + p_.layout.mail_piece_slot(parity_, phase, of);
  }
  [[nodiscard]] __device__ __forceinline__ Data load(unsigned packet) const {
    return load_packet<Stored, 16>(p_.in, offset(packet), p_.bytes, p_.aligned);
  }
  __device__ __forceinline__ void store(unsigned packet, const Data& data) const {
    store_packet<Stored, 16>(p_.out, offset(packet), p_.bytes, p_.aligned, data);
  }

  /// f(rank, step) for every peer, beginning with the right neighbour, so that no link is everyone's first.
  template <class F>
  __device__ __forceinline__ void for_peers(F&& f) const {
#pragma unroll
    for (int step = 1; step < kMaxRanks; ++step) {
      if (step < p_.size) f(p_.rank + step < p_.size ? p_.rank + step : p_.rank + step - p_.size, step);
    }
  }
  __device__ __forceinline__ void load_others(Data (&data)[kMaxRanks], unsigned i) const {
    for_peers([&](int to, int step) { data[step] = load(place(to, i)); });
  }

  /// Waits for the packet of every peer at slot(r), and empties the slots.
  template <class Slot>
  __device__ __forceinline__ bool take(Data (&data)[kMaxRanks], Slot&& slot) const {
    unsigned missing = 0;
    const auto look = [&] {
#pragma unroll
      for (int r = 0; r < kMaxRanks; ++r) {
        if (r < p_.size && r != p_.rank) data[r] = Box::peek(slot(r));
      }
      missing = 0;
#pragma unroll
      for (int r = 0; r < kMaxRanks; ++r) {
        if (r < p_.size && r != p_.rank && !Box::full(data[r])) missing |= 1u << r;
      }
      return missing == 0;
    };
    std::uint64_t deadline = 0;
    for (int polls = 1; !look(); ++polls) {
      if (polls % device::kPollsPerLook != 0) continue;
      const int awaited = __ffs(static_cast<int>(missing)) - 1;
      deadline = device::consult(p_.guard, awaited, DeviceFault::all_reduce, deadline);
      if (deadline == device::kHopeless) return false;
      if (deadline != device::kLookOnceMore) continue;
      deadline = 0;
      if (look()) break;
      if ((missing >> awaited & 1u) == 0) continue;  // it came; another one is missing still
      device::record_fault(p_.guard, DeviceFault::left, awaited, DeviceFault::all_reduce);
      return false;
    }
#pragma unroll
    for (int r = 0; r < kMaxRanks; ++r) {
      if (r < p_.size && r != p_.rank) Box::clear(slot(r));
    }
    return true;
  }

  /// In the order of ranks, on every rank.
  [[nodiscard]] __device__ __forceinline__ Data combined(const Data (&data)[kMaxRanks],
                                                         const Data& own) const {
    Accumulator<E, kOp, 16> total(choose(p_.rank == 0, own, data[0]));
#pragma unroll
    for (int r = 1; r < kMaxRanks; ++r) {
      if (r < p_.size) total.add(choose(r == p_.rank, own, data[r]));
    }
    return total.result(p_.size);
  }

  const AllReduceParams& p_;
  unsigned parity_ = 0;
  unsigned piece_ = 0;  ///< packets
};

}  // namespace onehop::cuda
