// Copies between plain memory.
#pragma once

#include <cstddef>
#include <cstring>

namespace onehop::host {

/// memcpy that accepts dst == src, which in-place collectives pass. No other overlap.
inline void copy(void* dst, const void* src, std::size_t bytes) {
  if (dst != src && bytes != 0) std::memcpy(dst, src, bytes);
}

/// The same with stores that bypass the caches: for outputs larger than they are and not read soon; slower
/// for all others. Other threads see the result after a release store or barrier of this thread, as with
/// ordinary stores.
void copy_streaming(void* dst, const void* src, std::size_t bytes);

}  // namespace onehop::host
