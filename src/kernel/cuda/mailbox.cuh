// SPDX-License-Identifier: Apache-2.0
// Lamport buffers ("mailboxes"): floating-point data passes through memory whose words show whether data has
// arrived.
//
// Between uses every word of a mailbox is kEmpty, all ones. A sender overwrites words. A receiver polls until
// none of the words it awaits is kEmpty, takes them and stores kEmpty again. Only data travels: no flags, no
// fences, no barrier. All ones is a NaN in every floating-point format (four NaNs in FP8, since 0xff is NaN
// in both FP8 formats). No other value is lost. A NaN with these bits is sent as the format's usual NaN, and
// every NaN result is that one anyway (elements.cuh). Infinities have zeros in their fractions, so no word
// that holds one is all ones. Integers have no value to spare, so they use other protocols (flagged.cuh,
// chunked.cuh).
//
// By the rule of two calls (call.cuh) a mailbox is empty again when it is written: its receiver in call e - 2
// restored kEmpty in that call.
#pragma once

#include "kernel/cuda/call.cuh"
#include "kernel/cuda/packet.cuh"

namespace onehop::cuda {

inline constexpr std::uint32_t kEmpty = 0xffffffff;

/// The word width: hardware must store a word whole, and a word of all ones must be a single NaN value. That
/// is 8 bytes for f64, whose lower half may be all ones in any number, and 4 bytes otherwise.
template <class E>
struct Mailbox {
  static constexpr int kWidth = 16;
  static constexpr int kStride = 16;
  static constexpr bool kScrubs = false;
  static constexpr bool kWide = sizeof(typename E::Stored) == 8;
  using Data = Packet<kWidth>;
  using Wire = Data;

  __device__ __forceinline__ explicit Mailbox(std::uint64_t) {}

  /// Replaces data that looks empty by the usual NaN.
  static __device__ __forceinline__ Wire wire(Data data) {
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

  static __device__ __forceinline__ bool arrived(const Wire& wire) {
    if constexpr (kWide) {
      return (wire.words[0] & wire.words[1]) != kEmpty && (wire.words[2] & wire.words[3]) != kEmpty;
    } else {
      return wire.words[0] != kEmpty && wire.words[1] != kEmpty && wire.words[2] != kEmpty &&
             wire.words[3] != kEmpty;
    }
  }
  static __device__ __forceinline__ const Data& data(const Wire& wire) {
    return wire;
  }

  /// relaxed.sys: each word pairs by itself with its load in peek(); it orders nothing else.
  static __device__ __forceinline__ void send(std::byte* to, const Wire& wire) {
    if constexpr (kWide) {
      asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(join(wire, 0)),
                   "l"(join(wire, 2))
                   : "memory");
    } else {
      asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(wire.words[0]),
                   "r"(wire.words[1]), "r"(wire.words[2]), "r"(wire.words[3])
                   : "memory");
    }
  }

  static __device__ __forceinline__ Wire peek(const std::byte* from) {
    Wire wire;
    if constexpr (kWide) {
      std::uint64_t low;
      std::uint64_t high;
      asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                   : "=l"(low), "=l"(high)
                   : "l"(from)
                   : "memory");
      wire.words[0] = static_cast<std::uint32_t>(low), wire.words[1] = static_cast<std::uint32_t>(low >> 32);
      wire.words[2] = static_cast<std::uint32_t>(high),
      wire.words[3] = static_cast<std::uint32_t>(high >> 32);
    } else {
      asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(wire.words[0]), "=r"(wire.words[1]), "=r"(wire.words[2]), "=r"(wire.words[3])
                   : "l"(from)
                   : "memory");
    }
    return wire;
  }

  static __device__ __forceinline__ void taken(std::byte* at) {
    store_whole<16>(at, {kEmpty, kEmpty, kEmpty, kEmpty});
  }

 private:
  static __device__ __forceinline__ std::uint64_t join(const Data& data, int i) {
    return data.words[i] | static_cast<std::uint64_t>(data.words[i + 1]) << 32;
  }
};

}  // namespace onehop::cuda
