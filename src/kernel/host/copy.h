// SPDX-License-Identifier: Apache-2.0
// Copies between plain memory.
#pragma once

#include <cstddef>
#include <cstring>

namespace onehop::host {

/// memcpy that accepts dst == src, which in-place collectives pass. No other overlap.
inline void copy(void* dst, const void* src, std::size_t bytes) {
  if (dst != src && bytes != 0) std::memcpy(dst, src, bytes);
}

/// Starts fetching the cache lines of `data` for writing, and does not wait for them. A hint: changes no
/// value.
inline void claim_for_writing(const std::byte* data, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 64) {
#if defined(__x86_64__)
    // Not __builtin_prefetch: for the baseline instruction set that fetches for reading. CPUs without this
    // instruction treat it as a no-op.
    asm volatile("prefetchw %0" : : "m"(data[at]));
#else
    __builtin_prefetch(data + at, 1);
#endif
  }
}

/// copy with stores that bypass the caches: for outputs larger than they are and not read soon; slower
/// for all others. Other threads see the result after a release store or barrier of this thread, as with
/// ordinary stores. On aarch64 a plain copy: its processors notice long streams of whole lines by themselves.
void copy_streaming(void* dst, const void* src, std::size_t bytes);

}  // namespace onehop::host
