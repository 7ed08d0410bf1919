// SPDX-License-Identifier: Apache-2.0
#include "windows.h"

#include <utility>

namespace onehop::nccl {

void Windows::add(void* handle, SymmetricBuffer buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.insert_or_assign(handle, std::move(buffer));
  any_.store(true, std::memory_order_relaxed);
}

bool Windows::remove(void* handle) {
  const std::lock_guard lock(mutex_);
  const bool removed = buffers_.erase(handle) != 0;
  any_.store(!buffers_.empty(), std::memory_order_relaxed);
  return removed;
}

bool Windows::promises(const Call& call, int ranks) const {
  // Relaxed: programs register before they call.
  if (!any_.load(std::memory_order_relaxed)) return false;
  // In the others some ranks have no output, or use no copy engines.
  const bool gathers = call.collective == Collective::all_gather || call.collective == Collective::all_to_all;
  if (!gathers && call.collective != Collective::all_reduce) return false;
  const std::size_t bytes = call.count * size_of(call.type) * static_cast<std::size_t>(gathers ? ranks : 1);
  const auto* const out = static_cast<const std::byte*>(call.out);
  const std::lock_guard lock(mutex_);
  for (const auto& [handle, buffer] : buffers_) {
    const auto* const begin = static_cast<const std::byte*>(buffer.local());
    if (out >= begin && out <= begin + buffer.bytes() &&
        bytes <= static_cast<std::size_t>(begin + buffer.bytes() - out))
      return true;
  }
  return false;
}

}  // namespace onehop::nccl
