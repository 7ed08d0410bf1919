// SPDX-License-Identifier: Apache-2.0
// Lamport buffers: floating-point data passes through memory whose words show whether data has arrived.
//
// Zero means empty, so zeroed memory is an empty buffer. Data travels complemented. A sender overwrites empty
// words. A receiver polls until none of the words it awaits is zero, takes them and stores zeros again. Only
// data travels: no flags, no fences, no barrier. By the rule of two calls (docs/memory-model.md) the zeros
// are in place when the words are written again.
//
// The only word that would travel as zero is all ones. It is a NaN in every floating-point format (four NaNs
// in FP8, since 0xff is NaN in both FP8 formats), and another NaN is sent in its place. No other value is
// lost. Infinities have zeros in their fractions, so no word that holds one is all ones. Integers have no
// value to spare; they use other protocols.
#pragma once

#include <type_traits>

#include "onehop/device/wire/words.cuh"

namespace onehop::device {

/// 4, 8 or 16 bytes of data, as they travel. A Word arrives whole, and one of all ones must be a single NaN
/// value: std::uint64_t for elements of 8 bytes, whose lower half may be all ones in any number, and
/// std::uint32_t otherwise.
template <class Word, int kBytes>
struct LamportWire {
  static_assert(std::is_same_v<Word, std::uint32_t> || std::is_same_v<Word, std::uint64_t>);
  static constexpr int kCount = kBytes / static_cast<int>(sizeof(Word));
  static constexpr int kPerWord = static_cast<int>(sizeof(Word) / 4);

  Word at[kCount];

  /// `nan`: what replaces a word of all ones.
  [[nodiscard]] static __device__ __forceinline__ LamportWire encode(const std::uint32_t (&data)[kBytes / 4],
                                                                     Word nan) {
    LamportWire wire;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      Word word = data[kPerWord * i];
      if constexpr (kPerWord == 2) word |= static_cast<Word>(data[2 * i + 1]) << 32;
      wire.at[i] = word == static_cast<Word>(-1) ? ~nan : ~word;
    }
    return wire;
  }
  __device__ __forceinline__ void send(std::byte* to) const {
    send_words(to, at);
  }
  [[nodiscard]] static __device__ __forceinline__ LamportWire poll(const std::byte* from) {
    LamportWire wire;
    poll_words(from, wire.at);
    return wire;
  }
  [[nodiscard]] __device__ __forceinline__ bool arrived() const {
    bool all = true;
#pragma unroll
    for (int i = 0; i < kCount; ++i) all = all && at[i] != 0;
    return all;
  }
  __device__ __forceinline__ void decode(std::uint32_t (&data)[kBytes / 4]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      data[kPerWord * i] = ~static_cast<std::uint32_t>(at[i]);
      if constexpr (kPerWord == 2) data[2 * i + 1] = ~static_cast<std::uint32_t>(at[i] >> 32);
    }
  }
  /// Empties the words that were taken. Plain stores: pair with the sender's next send() to this place. They must be
  /// performed before it, because this kernel ends between them or by a chain of releases and acquires.
  static __device__ __forceinline__ void clear(std::byte* at) {
    clear_bytes<kBytes>(at);
  }
};

}  // namespace onehop::device
