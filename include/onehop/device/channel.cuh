// SPDX-License-Identifier: Apache-2.0
// Small messages between kernels over a channel (channel.h). A sender stores words into the receiver's
// memory; the receiver polls its own memory until they arrive. This takes a single one-way trip over the
// link, without a fence or barrier.
//
//   __global__ void exchange(const __grid_constant__ onehop::LLChannel channel, const float4* in, ...) {
//     onehop::device::LLPackets packets(channel);     // this kernel's use of the channel
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
// Rules, for LLPackets and for LamportBuffers:
//
// - A *use* is one kernel on each rank. All ranks use a channel equally often. Kernels that use it must be
//   ordered on each rank: in one stream, or with events between streams. The kernels of a replayed graph
//   count like others.
// - In every use every rank takes something from every other rank, so slots are free when they are rewritten.
//   A kernel in use e has received data from each peer's use e - 1. That use began after the peer's use e - 2
//   had ended, and with it all reads of the slots that have the parity of e. Uses may differ in how much they
//   send and where in a slot.
// - A kernel launched with programmatic stream serialization calls cudaGridDependencySynchronize() before it
//   constructs one of them. This guarantees here, too, that the previous kernel has ended.
// - All blocks of a kernel that waits must be resident at once.
// - Each word is ordered only by itself. To publish data outside the channel, use put_signal (signal.cuh).
//
// For a T of 4, 8 or 16 bytes, index i is byte i * sizeof(T) of a slot. That is this rank's slot on `dst`, or
// the slot of `src` here. Indexes are not checked against the size of the channel. The two sides agree on
// bytes, not on T: two floats may be taken as one float2.
//
// Any thread may call put, take and take_all. One thread puts each word. Any number of threads may take a
// word of LLPackets, but only one thread takes a word of LamportBuffers.
#pragma once

#include <type_traits>

#include "onehop/device/channel.h"
#include "onehop/device/epoch.cuh"
#include "onehop/device/signal.cuh"
#include "onehop/device/wire/ll.cuh"
#include "onehop/device/wire/slot.cuh"

namespace onehop::device {

namespace detail {

/// A word of NaN in every floating-point format of up to 4 bytes.
inline constexpr std::uint32_t kNanOfFloats = 0x7fff7fff;
template <int kBytes>
using FloatSlot = LamportSlot<kBytes, kNanOfFloats>;

/// One kernel's use of a channel. Kind: the channel. SlotOf<n>: how n bytes travel in it.
template <class Kind, template <int> class SlotOf>
class ChannelUse {
 public:
  using Channel = Kind;

  /// Every thread constructs one, as soon as the kernel may read what the previous kernel wrote. `channel` is
  /// the kernel's parameter and must outlive this object, which refers to it.
  __device__ __forceinline__ explicit ChannelUse(const Channel& channel)
      : slots_(channel.slots),
        use_(read_epoch(*slots_.uses)),
        side_((use_ & 1) != 0 ? slots_.parity_bytes : 0) {}

  /// Puts `value` at `index` of this rank's slot on `dst`, which may be this rank.
  template <class T>
  __device__ __forceinline__ void put(int dst, std::uint32_t index, T value) const {
    // relaxed.sys: each word pairs by itself with its load in take() or take_all() on `dst`.
    const Slot<T> slot(use_);
    slot.send(slots_.outbox[dst] + side_ + place<T>(index), slot.wire(packet_of(value)));
  }

  /// Waits for the value that `src` put at `index` in this use. Returns false if it will not come; `value` is
  /// then unchanged.
  template <class T>
  [[nodiscard]] __device__ __forceinline__ bool take(int src, std::uint32_t index, T& value) const {
    const Slot<T> slot(use_);
    std::byte* const at = inbox(src) + place<T>(index);
    Wire<T> wire;
    // relaxed.sys: pairs with put().
    const bool came = wait_until(slots_.guard, src, DeviceFault::user, [&] {
      wire = slot.peek(at);
      return slot.arrived(wire);
    });
    if (!came) return false;
    value = value_of<T>(wire);
    slot.taken(at);
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
    const Slot<T> slot(use_);
    Wire<T> wires[kRanks];
    unsigned missing = 0;
    const auto look = [&] {
    // Loads also the slots that are not awaited: so the loads need no branches, and all are issued before the
    // first result is checked. relaxed.sys: pair with put().
#pragma unroll
      for (int r = 0; r < kRanks; ++r) wires[r] = slot.peek(from[r]);
      missing = 0;
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        missing |= awaits<kRanks>(r) && !slot.arrived(wires[r]) ? 1u << r : 0;
      }
      return missing == 0;
    };
    if (!wait_until_all(slots_.guard, DeviceFault::user, look, [&] { return missing; })) return false;
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      values[r] = awaits<kRanks>(r) ? value_of<T>(wires[r]) : own;
      if (awaits<kRanks>(r)) slot.taken(inbox(r) + place<T>(index));
    }
    return true;
  }

  /// Called once by all threads of every block (one-dimensional, in a one-dimensional grid of at most 65536 blocks).
  /// Counts the use for the next kernel. `words` is an upper bound on the words (4 bytes each) that this kernel puts
  /// in a slot. Preferably called before waiting.
  __device__ __forceinline__ void advance(std::uint32_t words) const {
    if (SlotOf<4>::kScrubs && scrub_due(use_))
      scrub_behind(slots_, side_, static_cast<std::uint32_t>(use_), words);
    (void)__syncthreads_or(static_cast<int>(use_));  // a thread may not have used it yet
    advance_epoch(*slots_.uses, use_);
  }

 private:
  template <class T>
  using Slot = SlotOf<sizeof(T)>;
  template <class T>
  using Wire = typename Slot<T>::Wire;

  static __device__ __noinline__ void scrub_behind(const ChannelSlots& slots, std::size_t side,
                                                   std::uint32_t flag, std::uint32_t words) {
    for (int r = 0; r < slots.size; ++r) scrub(slots.outbox[r] + side, words, slots.words, flag);
  }
  template <class T>
  [[nodiscard]] static __device__ __forceinline__ Packet<sizeof(T)> packet_of(T value) {
    static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16),
                  "channels carry 4, 8 or 16 bytes at a time");
    return __builtin_bit_cast(Packet<sizeof(T)>, value);
  }
  template <class T>
  [[nodiscard]] static __device__ __forceinline__ T value_of(const Wire<T>& wire) {
    return __builtin_bit_cast(T, Slot<T>::data(wire));
  }
  template <class T>
  [[nodiscard]] static __device__ __forceinline__ std::size_t place(std::uint32_t index) {
    return std::size_t{index} * Slot<T>::kStride;
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
  const std::uint64_t use_;  ///< the number of the use: the epoch of the channel
  const std::size_t side_;
};

}  // namespace detail

using LLPackets = detail::ChannelUse<LLChannel, LLSlot>;
using LamportBuffers = detail::ChannelUse<LamportChannel, detail::FloatSlot>;

}  // namespace onehop::device
