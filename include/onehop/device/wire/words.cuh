// SPDX-License-Identifier: Apache-2.0
// Loads and stores of words that show by themselves whether they have arrived: what the wire formats
// (ll.cuh, lamport.cuh) have in common. Each word is one aligned unit of 4 or 8 bytes, which arrives whole.
// The words of one vector access are not ordered among each other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onehop::device {

/// relaxed.sys: each word pairs by itself with its load in poll_words() on the receiver; it orders nothing
/// else. `to` is aligned to the size of all words together, or to 16 bytes if that is less.
template <class Word, int kCount>
__device__ __forceinline__ void send_words(std::byte* to, const Word (&words)[kCount]) {
  static_assert((sizeof(Word) == 4 || sizeof(Word) == 8) && (kCount == 1 || kCount == 2 || kCount == 4));
  if constexpr (sizeof(Word) == 4) {
    if constexpr (kCount == 1) {
      asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(words[0]) : "memory");
    } else if constexpr (kCount == 2) {
      asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(words[0]), "r"(words[1])
                   : "memory");
    } else {
      asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words[0]),
                   "r"(words[1]), "r"(words[2]), "r"(words[3])
                   : "memory");
    }
  } else if constexpr (kCount == 1) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(words[0]) : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to + 8 * i), "l"(words[i]),
                   "l"(words[i + 1])
                   : "memory");
    }
  }
}

/// relaxed.sys: each word pairs with its store in send_words().
template <class Word, int kCount>
__device__ __forceinline__ void poll_words(const std::byte* from, Word (&words)[kCount]) {
  static_assert((sizeof(Word) == 4 || sizeof(Word) == 8) && (kCount == 1 || kCount == 2 || kCount == 4));
  if constexpr (sizeof(Word) == 4) {
    if constexpr (kCount == 1) {
      asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(words[0]) : "l"(from) : "memory");
    } else if constexpr (kCount == 2) {
      asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];"
                   : "=r"(words[0]), "=r"(words[1])
                   : "l"(from)
                   : "memory");
    } else {
      asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                   : "l"(from)
                   : "memory");
    }
  } else if constexpr (kCount == 1) {
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(words[0]) : "l"(from) : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                   : "=l"(words[i]), "=l"(words[i + 1])
                   : "l"(from + 8 * i)
                   : "memory");
    }
  }
}

/// Plain stores of zeros.
template <int kBytes>
__device__ __forceinline__ void clear_bytes(std::byte* at) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  if constexpr (kBytes == 4) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(0) : "memory");
  } else if constexpr (kBytes == 8) {
    asm volatile("st.global.v2.u32 [%0], {%1, %1};" ::"l"(at), "r"(0) : "memory");
  } else {
    asm volatile("st.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(at), "r"(0) : "memory");
  }
}

}  // namespace onehop::device
