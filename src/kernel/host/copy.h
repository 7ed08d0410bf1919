// Copies between plain memory.
#pragma once

#include <cstddef>
#include <cstring>

namespace onehop::host {

/// memcpy that accepts dst == src, which in-place collectives pass. No other overlap.
inline void copy(void* dst, const void* src, std::size_t bytes) {
  if (dst != src && bytes != 0) std::memcpy(dst, src, bytes);
}

/// The same with stores that bypass the caches: for outputs larger than they are and not read soon, where
/// reading each line before overwriting it would cost half as much again. Other threads see the result after
/// a release store or barrier of this thread, as with ordinary stores.
void copy_streaming(void* dst, const void* src, std::size_t bytes);

/// copy_streaming without its last step: nothing that this thread does afterwards publishes the data until
/// streaming_fence(). For several pieces in a row; pieces should meet at multiples of 64 bytes of dst.
void copy_streaming_unfenced(void* dst, const void* src, std::size_t bytes);
void streaming_fence();

}  // namespace onehop::host
