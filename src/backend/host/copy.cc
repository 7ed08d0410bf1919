// SPDX-License-Identifier: Apache-2.0
#include "backend/host/copy.h"

#include <algorithm>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace onehop::host {

void copy_streaming(void* dst, const void* src, std::size_t bytes) {
#if defined(__SSE2__)
  if (dst == src) return;
  constexpr std::size_t kLine = 64;
  auto* to = static_cast<unsigned char*>(dst);
  const auto* from = static_cast<const unsigned char*>(src);
  const std::size_t head = std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine);
  copy(to, from, head);
  std::size_t at = head;
  // Whole lines, so that each leaves its write-combining buffer at once.
  for (; bytes - at >= kLine; at += kLine) {
    __m128i line[4];
    std::memcpy(line, from + at, kLine);
    for (std::size_t i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to + at) + i, line[i]);
  }
  copy(to + at, from + at, bytes - at);
  // x86 may reorder non-temporal stores after later ordinary stores. So the caller's release store (a plain
  // mov) would not order them without this fence. With it, it does, for any thread that acquires from that
  // store.
  _mm_sfence();
#else
  copy(dst, src, bytes);
#endif
}

}  // namespace onehop::host
