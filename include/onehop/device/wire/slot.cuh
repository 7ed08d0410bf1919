// SPDX-License-Identifier: Apache-2.0
// Packets in slots: what a kernel does with them, the same for LL packets and for Lamport buffers. The library's
// all-reduces (push.cuh there) and users' channels (channel.cuh) are written against this interface:
//
//   const Slot slot(epoch);                                     // this kernel's use of the slots
//   slot.send(to, slot.wire(packet));                           // the sender
//   do wire = Slot::peek(from); while (!slot.arrived(wire));    // the receiver; wait_until (signal.cuh) has a deadline
//   packet = Slot::data(wire);
//   Slot::taken(from);
//
// kWidth: bytes of data that one thread moves at a time: 4, 8 or 16. kStride: bytes that these occupy in a slot.
// kScrubs: whether old words must be rewritten now and then (ll.cuh). Addresses are multiples of kStride.
// All words are sent and polled relaxed.sys: each pairs by itself with its counterpart, and orders nothing else.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onehop/device/element.cuh"
#include "onehop/device/wire/lamport.cuh"
#include "onehop/device/wire/ll.cuh"

namespace onehop::device {

template <int kBytes>
struct LLSlot {
  using Data = Packet<kBytes>;
  using Wire = LLWire<kBytes>;
  static constexpr int kWidth = kBytes;
  static constexpr int kStride = kBytes * Wire::kWidening;
  static constexpr bool kScrubs = true;

  std::uint32_t flag;
  __device__ __forceinline__ explicit LLSlot(std::uint64_t epoch) : flag(static_cast<std::uint32_t>(epoch)) {}

  [[nodiscard]] __device__ __forceinline__ Wire wire(const Data& data) const {
    return Wire::encode(data.words, flag);
  }
  static __device__ __forceinline__ void send(std::byte* to, const Wire& wire) { wire.send(to); }
  [[nodiscard]] static __device__ __forceinline__ Wire peek(const std::byte* from) {
    return Wire::poll(from);
  }
  [[nodiscard]] __device__ __forceinline__ bool arrived(const Wire& wire) const { return wire.arrived(flag); }
  [[nodiscard]] static __device__ __forceinline__ Data data(const Wire& wire) {
    Data data;
    wire.decode(data.words);
    return data;
  }
  static __device__ __forceinline__ void taken(std::byte* /*at*/) {}
};

/// kNan: what replaces a word of all ones. Its type is that of the words (lamport.cuh).
template <int kBytes, auto kNan>
struct LamportSlot {
  using Data = Packet<kBytes>;
  using Wire = LamportWire<decltype(kNan), kBytes>;
  static constexpr int kWidth = kBytes;
  static constexpr int kStride = kBytes;
  static constexpr bool kScrubs = false;
  static constexpr bool kEscapes = false;  ///< as in the library's streams of integers

  __device__ __forceinline__ explicit LamportSlot(std::uint64_t /*epoch*/ = 0) {}

  [[nodiscard]] static __device__ __forceinline__ Wire wire(const Data& data) {
    return Wire::encode(data.words, kNan);
  }
  static __device__ __forceinline__ void send(std::byte* to, const Wire& wire) { wire.send(to); }
  [[nodiscard]] static __device__ __forceinline__ Wire peek(const std::byte* from) {
    return Wire::poll(from);
  }
  [[nodiscard]] static __device__ __forceinline__ bool arrived(const Wire& wire) { return wire.arrived(); }
  [[nodiscard]] static __device__ __forceinline__ Data data(const Wire& wire) {
    Data data;
    wire.decode(data.words);
    return data;
  }
  static __device__ __forceinline__ void taken(std::byte* at) { Wire::clear(at); }
};

}  // namespace onehop::device
