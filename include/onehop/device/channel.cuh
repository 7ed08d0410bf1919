// SPDX-License-Identifier: Apache-2.0
// Small messages between kernels over a channel (channel.h). A sender stores words into the receiver's
// memory; the receiver polls its own memory until they arrive. This takes a single one-way trip over the
// link, without a fence or barrier.
//
//   __global__ void exchange(const __grid_constant__ onehop::PacketChannel channel, const float4* in, ...) {
//     onehop::device::Packets packets(channel);       // this kernel's use of the channel
//     const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
//     for (int r = 0; r < channel.slots.size; ++r) {
//       if (r != channel.slots.rank) packets.put(r, i, in[i]);
//     }
//     packets.advance(4 * gridDim.x * blockDim.x);    // every thread of every block, once
//     float4 from[4];
//     if (!packets.take_all(i, in[i], from)) return;  // false: the host is told why (signal.cuh)
//     ...
//   }
//
// Rules, for Packets and for Mail:
//
// - A *use* is one kernel on each rank. All ranks use a channel equally often. Kernels that use it must be
//   ordered on each rank: in one stream, or with events between streams. The kernels of a replayed graph
//   count like others.
// - In every use every rank takes something from every other rank, so slots are free when they are rewritten.
//   A kernel in use e has received data from each peer's use e - 1. That use began after the peer's use e - 2
//   had ended, and with it all reads of the slots that have the parity of e. Uses may differ in how much they
//   send and where in a slot.
// - A kernel launched with programmatic stream serialization calls cudaGridDependencySynchronize() before it
//   constructs Packets or Mail. This guarantees here, too, that the previous kernel has ended.
// - All blocks of a kernel that waits must be resident at once.
// - Each word is ordered only by itself. To publish data outside the channel, use put_signal (signal.cuh).
//
// For a T of 4, 8 or 16 bytes, index i is byte i * sizeof(T) of a slot. That is this rank's slot on `dst`, or
// the slot of `src` here. Indexes are not checked against the size of the channel. The two sides agree on
// bytes, not on T: two floats may be taken as one float2.
//
// Any thread may call put, take and take_all. One thread puts each word. Any number of threads may take a
// word of a packet channel, but only one thread takes a word of mail.
#pragma once

#include <type_traits>

#include "onehop/device/channel.h"
#include "onehop/device/signal.cuh"

namespace onehop::device {

namespace detail {

/// T as an array of 32-bit words.
template <class T>
struct alignas(sizeof(T)) Words {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16),
                "channels carry 4, 8 or 16 bytes at a time");
  static constexpr int kCount = static_cast<int>(sizeof(T) / 4);
  std::uint32_t at[kCount];

  static __device__ __forceinline__ Words of(T value) { return __builtin_bit_cast(Words, value); }
  [[nodiscard]] __device__ __forceinline__ T value() const { return __builtin_bit_cast(T, *this); }
};

/// Slow path of a wait for several ranks; `awaited` is the first one whose data is missing. Returns a state
/// to pass to the next call (0 in the first one), or kHopeless.
static __device__ __noinline__ std::uint64_t reconsider(const DeviceGuard& guard, int awaited,
                                                        std::uint64_t state) {
  // Plus the rank: it has left, and its data was polled once more since.
  constexpr std::uint64_t kHadLeft = 2;
  static_assert(kHadLeft > kHopeless && kHadLeft > kLookOnceMore);
  if (state == kHadLeft + static_cast<unsigned>(awaited)) {
    record_fault(guard, DeviceFault::left, awaited, DeviceFault::user);
    return kHopeless;
  }
  const std::uint64_t deadline = state < kHadLeft + kMaxDevices ? 0 : state;
  const std::uint64_t next = consult(guard, awaited, DeviceFault::user, deadline);
  return next == kLookOnceMore ? kHadLeft + static_cast<unsigned>(awaited) : next;
}

/// A data word and the number of the use, stored as one 8-byte word. It arrives whole, so if the number
/// matches, the data is valid. Slots are never cleared: the numbers left in them belong to older uses.
struct PacketSlot {
  using Channel = PacketChannel;
  template <class T>
  struct Wire {
    static constexpr int kCount = Words<T>::kCount;
    std::uint64_t at[kCount];
  };

  template <class T>
  static __device__ __forceinline__ void send(std::byte* to, const Words<T>& words, std::uint32_t use) {
    const std::uint64_t flag = static_cast<std::uint64_t>(use) << 32;
    if constexpr (sizeof(T) == 4) {
      store_relaxed(reinterpret_cast<std::uint64_t*>(to), flag | words.at[0]);
    } else {
#pragma unroll
      for (int i = 0; i < Words<T>::kCount; i += 2) {
        asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to + 8 * i),
                     "l"(flag | words.at[i]), "l"(flag | words.at[i + 1])
                     : "memory");
      }
    }
  }
  template <class T>
  static __device__ __forceinline__ Wire<T> load(const std::byte* from) {
    Wire<T> wire;
    if constexpr (sizeof(T) == 4) {
      wire.at[0] = load_relaxed(reinterpret_cast<const std::uint64_t*>(from));
    } else {
#pragma unroll
      for (int i = 0; i < Wire<T>::kCount; i += 2) {
        asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                     : "=l"(wire.at[i]), "=l"(wire.at[i + 1])
                     : "l"(from + 8 * i)
                     : "memory");
      }
    }
    return wire;
  }
  template <class T>
  static __device__ __forceinline__ bool arrived(const Wire<T>& wire, std::uint32_t use) {
    bool all = true;
#pragma unroll
    for (int i = 0; i < Wire<T>::kCount; ++i)
      all = all && static_cast<std::uint32_t>(wire.at[i] >> 32) == use;
    return all;
  }
  template <class T>
  static __device__ __forceinline__ T value(const Wire<T>& wire) {
    Words<T> words;
#pragma unroll
    for (int i = 0; i < Wire<T>::kCount; ++i) words.at[i] = static_cast<std::uint32_t>(wire.at[i]);
    return words.value();
  }
  template <class T>
  static __device__ __forceinline__ void taken(std::byte*) {}

  /// The number of the use wraps after 2^32 uses. To keep any word from holding a number that old, two uses
  /// in every 2^30, one per parity, also store theirs in the words behind the message.
  static __device__ __forceinline__ void refresh(const ChannelSlots& slots, std::size_t side,
                                                 std::uint32_t use, std::uint32_t words) {
    constexpr std::uint32_t kPeriod = 1u << 30;
    if (use % kPeriod < 2) refresh_behind(slots, side, use, words);
  }

 private:
  static __device__ __noinline__ void refresh_behind(const ChannelSlots& slots, std::size_t side,
                                                     std::uint32_t use, std::uint32_t words) {
    const std::size_t threads = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = words + std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < slots.words;
         i += threads) {
      for (int r = 0; r < slots.size; ++r) {
        store_relaxed(reinterpret_cast<std::uint64_t*>(slots.outbox[r] + side + 8 * i),
                      static_cast<std::uint64_t>(use) << 32);
      }
    }
  }
};

/// Words are complemented and nonzero. The receiver resets them to zero in the same use. By the rules above
/// the zeros are in place when the sender writes again, two uses later.
struct MailSlot {
  using Channel = MailChannel;
  /// A NaN in every floating-point format of up to 4 bytes.
  static constexpr std::uint32_t kNan = 0x7fff7fff;
  template <class T>
  using Wire = Words<T>;

  template <class T>
  static __device__ __forceinline__ void send(std::byte* to, Words<T> words, std::uint32_t) {
#pragma unroll
    for (int i = 0; i < Words<T>::kCount; ++i) words.at[i] = words.at[i] == ~0u ? ~kNan : ~words.at[i];
    if constexpr (sizeof(T) == 4) {
      store_relaxed(reinterpret_cast<std::uint32_t*>(to), words.at[0]);
    } else if constexpr (sizeof(T) == 8) {
      asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(words.at[0]),
                   "r"(words.at[1])
                   : "memory");
    } else {
      asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.at[0]),
                   "r"(words.at[1]), "r"(words.at[2]), "r"(words.at[3])
                   : "memory");
    }
  }
  template <class T>
  static __device__ __forceinline__ Wire<T> load(const std::byte* from) {
    Wire<T> wire;
    if constexpr (sizeof(T) == 4) {
      wire.at[0] = load_relaxed(reinterpret_cast<const std::uint32_t*>(from));
    } else if constexpr (sizeof(T) == 8) {
      asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];"
                   : "=r"(wire.at[0]), "=r"(wire.at[1])
                   : "l"(from)
                   : "memory");
    } else {
      asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(wire.at[0]), "=r"(wire.at[1]), "=r"(wire.at[2]), "=r"(wire.at[3])
                   : "l"(from)
                   : "memory");
    }
    return wire;
  }
  template <class T>
  static __device__ __forceinline__ bool arrived(const Wire<T>& wire, std::uint32_t) {
    bool all = true;
#pragma unroll
    for (int i = 0; i < Words<T>::kCount; ++i) all = all && wire.at[i] != 0;
    return all;
  }
  template <class T>
  static __device__ __forceinline__ T value(Wire<T> wire) {
#pragma unroll
    for (int i = 0; i < Words<T>::kCount; ++i) wire.at[i] = ~wire.at[i];
    return wire.value();
  }
  /// Plain store: ordered before the sender's store to the same place two uses later, because this kernel
  /// ends between them.
  template <class T>
  static __device__ __forceinline__ void taken(std::byte* at) {
    if constexpr (sizeof(T) == 4) {
      *reinterpret_cast<std::uint32_t*>(at) = 0;
    } else if constexpr (sizeof(T) == 8) {
      *reinterpret_cast<uint2*>(at) = uint2{};
    } else {
      *reinterpret_cast<uint4*>(at) = uint4{};
    }
  }
  static __device__ __forceinline__ void refresh(const ChannelSlots&, std::size_t, std::uint32_t,
                                                 std::uint32_t) {}
};

/// One kernel's use of a channel.
template <class Slot>
class ChannelUse {
 public:
  using Channel = typename Slot::Channel;

  /// Every thread constructs one, as soon as the kernel may read what the previous kernel wrote. `channel` is
  /// the kernel's parameter and must outlive this object, which refers to it.
  __device__ __forceinline__ explicit ChannelUse(const Channel& channel)
      : slots_(channel.slots),
        // relaxed.sys: pairs with the store in advance() of the previous kernel.
        use_(load_relaxed(&slots_.head->uses) + 1),
        side_((use_ & 1) != 0 ? slots_.parity_bytes : 0) {}

  /// Puts `value` at `index` of this rank's slot on `dst`, which may be this rank.
  template <class T>
  __device__ __forceinline__ void put(int dst, std::uint32_t index, T value) const {
    // relaxed.sys: each word pairs by itself with its load in take() or take_all() on `dst`.
    Slot::send(slots_.outbox[dst] + side_ + place<T>(index), Words<T>::of(value), use_);
  }

  /// Waits for the value that `src` put at `index` in this use. Returns false if it will not come; `value` is
  /// then unchanged.
  template <class T>
  [[nodiscard]] __device__ __forceinline__ bool take(int src, std::uint32_t index, T& value) const {
    std::byte* const at = inbox(src) + place<T>(index);
    typename Slot::template Wire<T> wire;
    // relaxed.sys: pairs with put().
    const bool came = wait_until(slots_.guard, src, DeviceFault::user, [&] {
      wire = Slot::template load<T>(at);
      return Slot::template arrived<T>(wire, use_);
    });
    if (!came) return false;
    value = Slot::template value<T>(wire);
    Slot::template taken<T>(at);
    return true;
  }

  /// Waits for the values that all other ranks put at `index`, polling them together. values[r] is that of
  /// rank r, and `own` for this rank. kRanks is the number of ranks, or kMaxDevices for any number. Returns
  /// false if a value will not come; `values` are then unchanged.
  template <int kRanks, class T>
  [[nodiscard]] __device__ __forceinline__ bool take_all(std::uint32_t index, T own,
                                                         T (&values)[kRanks]) const {
    const std::byte* from[kRanks];
#pragma unroll
    for (int r = 0; r < kRanks; ++r) from[r] = inbox(exists<kRanks>(r) ? r : 0) + place<T>(index);
    typename Slot::template Wire<T> wires[kRanks];
    unsigned missing = 0;
    const auto look = [&] {
    // Loads also the slots that are not awaited: so the loads need no branches, and all are issued before the
    // first result is checked. relaxed.sys: pair with put().
#pragma unroll
      for (int r = 0; r < kRanks; ++r) wires[r] = Slot::template load<T>(from[r]);
      missing = 0;
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        missing |= awaits<kRanks>(r) && !Slot::template arrived<T>(wires[r], use_) ? 1u << r : 0;
      }
      return missing == 0;
    };
    std::uint64_t state = 0;
    for (int polls = 1; !look(); ++polls) {
      if (polls % kPollsPerLook != 0) continue;
      state = reconsider(slots_.guard, __ffs(static_cast<int>(missing)) - 1, state);
      if (state == kHopeless) return false;
    }
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      values[r] = awaits<kRanks>(r) ? Slot::template value<T>(wires[r]) : own;
      if (awaits<kRanks>(r)) Slot::template taken<T>(inbox(r) + place<T>(index));
    }
    return true;
  }

  /// Called once by all threads of every block (one-dimensional, in a one-dimensional grid). The last block
  /// counts the use for the next kernel. `words` is an upper bound on the words (4 bytes each) that this
  /// kernel puts in a slot. Preferably called before waiting.
  __device__ __forceinline__ void advance(std::uint32_t words) const {
    Slot::refresh(slots_, side_, use_, words);
    // Passing use_ to the barrier completes every thread's load of it before the last block updates the
    // count.
    (void)__syncthreads_or(static_cast<int>(use_));
    if (threadIdx.x != 0) return;
    if (gridDim.x > 1) {
      if (atomicAdd(&slots_.head->arrivals, 1u) != gridDim.x - 1) return;
      slots_.head->arrivals = 0;
    }
    // Plain store: pairs with the load in the constructor of the next kernel; this kernel ends between them.
    slots_.head->uses = use_;
  }

 private:
  template <class T>
  [[nodiscard]] static __device__ __forceinline__ std::size_t place(std::uint32_t index) {
    return std::size_t{index} * (Channel::kWidening * sizeof(T));
  }
  [[nodiscard]] __device__ __forceinline__ std::byte* inbox(int src) const {
    return slots_.inbox + side_ + static_cast<unsigned>(src) * slots_.slot_bytes;
  }
  template <int kRanks>
  [[nodiscard]] __device__ __forceinline__ bool exists(int r) const {
    return kRanks < kMaxDevices || r < slots_.size;
  }
  template <int kRanks>
  [[nodiscard]] __device__ __forceinline__ bool awaits(int r) const {
    return exists<kRanks>(r) && r != slots_.rank;
  }

  const ChannelSlots& slots_;
  const std::uint32_t use_;
  const std::size_t side_;
};

}  // namespace detail

using Packets = detail::ChannelUse<detail::PacketSlot>;
using Mail = detail::ChannelUse<detail::MailSlot>;

}  // namespace onehop::device
