// SPDX-License-Identifier: Apache-2.0
// Small messages between kernels over a channel (channel.h): a sender stores words into the receiver's
// memory, a receiver polls its own memory until they are there. No fence, no barrier, one trip.
//
//   __global__ void exchange(const __grid_constant__ onehop::PacketChannel channel, const float4* in, ...) {
//     onehop::device::Packets packets(channel);       // this kernel's use of the channel
//     const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
//     for (int r = 0; r < channel.slots.size; ++r) {
//       if (r != channel.slots.rank) packets.put(r, i, in[i]);
//     }
//     packets.advance(4 * gridDim.x * blockDim.x);    // every thread of every block, once
//     float4 from[4];
//     if (!packets.take_all(i, in[i], from)) return;  // false: the host hears why (signal.cuh)
//     ...
//   }
//
// Rules, for Packets and for Mail:
//
// - A *use* is one kernel on each rank. All ranks use a channel equally often. Kernels that use it follow one
//   another on each rank: one stream, or events between streams. A replayed graph's kernels count like
//   others.
// - In every use every rank takes something from every other one. So nobody has to ask whether a slot is
//   free: a kernel in use e has heard from each peer in use e - 1, which began there when use e - 2 had
//   ended, and with it all reading of slots of the parity of e. Uses may differ in how much they send, and
//   where in a slot.
// - A kernel that was launched with programmatic stream serialization calls cudaGridDependencySynchronize()
//   before it makes Packets or Mail: then, too, the kernel before has ended.
// - All blocks of a kernel that waits are resident at once.
// - Only each word by itself is ordered. What is to be seen *because* a word came, but is not in a channel
//   itself, needs put_signal (signal.cuh).
//
// Index i of a T, of 4, 8 or 16 bytes, is byte i * sizeof(T) of the slot that this rank has on `dst`, or
// `src` has here. Nobody checks that it is within what the channel was made for. The two sides agree on
// bytes, not on T: two floats may be taken as one float2.
//
// Any thread may call put, take and take_all. A word of a packet channel is put by one thread and taken by
// any number, a word of mail is put by one and taken by one.
#pragma once

#include <type_traits>

#include "onehop/device/channel.h"
#include "onehop/device/signal.cuh"

namespace onehop::device {

namespace detail {

/// What T is made of.
template <class T>
struct alignas(sizeof(T)) Words {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16),
                "channels carry 4, 8 or 16 bytes at a time");
  static constexpr int kCount = static_cast<int>(sizeof(T) / 4);
  std::uint32_t at[kCount];

  static __device__ __forceinline__ Words of(T value) { return __builtin_bit_cast(Words, value); }
  [[nodiscard]] __device__ __forceinline__ T value() const { return __builtin_bit_cast(T, *this); }
};

/// The slow side of a wait for several ranks, of which `awaited` is the first that is missing: a state for
/// the next time (0 the first time), or kHopeless.
static __device__ __noinline__ std::uint64_t reconsider(const DeviceGuard& guard, int awaited,
                                                        std::uint64_t state) {
  constexpr std::uint64_t kHadLeft = 2;  // and the rank: it was looked for since
  static_assert(kHadLeft > kHopeless && kHadLeft > kLookOnceMore);
  if (state == kHadLeft + static_cast<unsigned>(awaited)) {
    record_fault(guard, DeviceFault::left, awaited, DeviceFault::user);
    return kHopeless;
  }
  const std::uint64_t deadline = state < kHadLeft + kMaxDevices ? 0 : state;
  const std::uint64_t next = consult(guard, awaited, DeviceFault::user, deadline);
  return next == kLookOnceMore ? kHadLeft + static_cast<unsigned>(awaited) : next;
}

/// A word of data and the number of the use, which arrive together: who finds the number has the data. Slots
/// are never cleared: numbers in them are of older uses.
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

  /// Numbers come round after 2^32 uses. So that no word holds one that old, two uses in every 2^30, one per
  /// parity, also give theirs to the words behind the message.
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

/// Words that are not zero, complemented. Whoever takes them puts zeros in their place, in the same use; that
/// they are there when the sender writes again, two uses later, is what the rule above says.
struct MailSlot {
  using Channel = MailChannel;
  static constexpr std::uint32_t kNan = 0x7fff7fff;  ///< of every floating-point format of up to 4 bytes
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
  /// Plain: pairs with the sender's store to this place two uses later; the end of this kernel is between
  /// them.
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

  /// By every thread, as early as the kernel may read what the one before it wrote. `channel`: the kernel's
  /// parameter, which it refers to.
  __device__ __forceinline__ explicit ChannelUse(const Channel& channel)
      : slots_(channel.slots),
        // relaxed: pairs with the store in advance(), in the kernel before.
        use_(load_relaxed(&slots_.head->uses) + 1),
        side_((use_ & 1) != 0 ? slots_.parity_bytes : 0) {}

  /// Puts `value` at `index` of this rank's slot on `dst`, which may be this rank itself.
  template <class T>
  __device__ __forceinline__ void put(int dst, std::uint32_t index, T value) const {
    // relaxed.sys: each word by itself pairs with its load in take() or take_all(), on `dst`.
    Slot::send(slots_.outbox[dst] + side_ + place<T>(index), Words<T>::of(value), use_);
  }

  /// Waits for what `src` put at `index` in this use. False: it will not come, and `value` is as it was.
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

  /// Waits for what every other rank put at `index`, all at the same time: values[r] is rank r's, and `own`
  /// for this rank. kRanks: how many ranks there are, or kMaxDevices for any number. False: values are as
  /// they were.
  template <int kRanks, class T>
  [[nodiscard]] __device__ __forceinline__ bool take_all(std::uint32_t index, T own,
                                                         T (&values)[kRanks]) const {
    const std::byte* from[kRanks];
#pragma unroll
    for (int r = 0; r < kRanks; ++r) from[r] = inbox(exists<kRanks>(r) ? r : 0) + place<T>(index);
    typename Slot::template Wire<T> wires[kRanks];
    unsigned missing = 0;
    const auto look = [&] {
    // Also what is not awaited: the loads then need no branches, and all are under way before the first is
    // looked at. relaxed.sys: pair with put().
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

  /// Once, by all threads of every block (of one dimension, in a grid of one), where all of them come: the
  /// last block counts the use, for the next kernel. `words`: this kernel puts no word (of 4 bytes) beyond so
  /// many of a slot. Before the waiting is a good place.
  __device__ __forceinline__ void advance(std::uint32_t words) const {
    Slot::refresh(slots_, side_, use_, words);
    // The number goes into the barrier, so that no thread's load of it is still under way behind it.
    (void)__syncthreads_or(static_cast<int>(use_));
    if (threadIdx.x != 0) return;
    if (gridDim.x > 1) {
      if (atomicAdd(&slots_.head->arrivals, 1u) != gridDim.x - 1) return;
      slots_.head->arrivals = 0;
    }
    // Plain: pairs with the load in the constructor, in the next kernel; the end of this one is between them.
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
