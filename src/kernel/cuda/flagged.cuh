// SPDX-License-Identifier: Apache-2.0
// Flags in the data words, as in NCCL's LL protocol: 4 bytes of data and the low 32 bits of the epoch form
// one aligned word of 8 bytes, which arrives whole. A receiver that reads the epoch also has the data: no
// fence, no barrier, one one-way trip. Carries any type, for twice the bytes.
//
// By the rule of two calls (call.cuh) a slot is free when it is written. The flags left in a slot are older
// epochs of the same parity; they are never cleared. The 32 bits wrap after 2^32 calls. Every kScrubPeriod
// calls, two calls in a row (one per parity) rewrite their slots to the end, so that no flag grows that old.
#pragma once

#include "kernel/cuda/call.cuh"
#include "kernel/cuda/packet.cuh"

namespace onehop::cuda {

template <class E>
struct Flagged {
  static constexpr int kWidth = 8;    ///< bytes of data that one thread moves at a time
  static constexpr int kStride = 16;  ///< bytes that these occupy in a slot
  static constexpr bool kScrubs = true;
  using Data = Packet<kWidth>;
  struct Wire {
    std::uint64_t low;
    std::uint64_t high;
  };

  std::uint32_t flag;
  __device__ __forceinline__ explicit Flagged(std::uint64_t epoch)
      : flag(static_cast<std::uint32_t>(epoch)) {}

  [[nodiscard]] __device__ __forceinline__ Wire wire(const Data& data) const {
    const std::uint64_t high = static_cast<std::uint64_t>(flag) << 32;
    return {high | data.words[0], high | data.words[1]};
  }
  /// relaxed.sys: each word pairs by itself with its load in peek(); it orders nothing else.
  static __device__ __forceinline__ void send(std::byte* to, const Wire& wire) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(wire.low), "l"(wire.high)
                 : "memory");
  }
  static __device__ __forceinline__ Wire peek(const std::byte* from) {
    Wire wire;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(wire.low), "=l"(wire.high)
                 : "l"(from)
                 : "memory");
    return wire;
  }
  [[nodiscard]] __device__ __forceinline__ bool arrived(const Wire& wire) const {
    return static_cast<std::uint32_t>(wire.low >> 32) == flag &&
           static_cast<std::uint32_t>(wire.high >> 32) == flag;
  }
  static __device__ __forceinline__ Data data(const Wire& wire) {
    return {static_cast<std::uint32_t>(wire.low), static_cast<std::uint32_t>(wire.high)};
  }
  static __device__ __forceinline__ void taken(std::byte*) {}
};

}  // namespace onehop::cuda
