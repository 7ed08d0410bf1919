// SPDX-License-Identifier: Apache-2.0
#include "windows.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "onehop/group.h"

#include "base/check.h"
#include "base/log.h"
#include "communicator.h"
#include "dispatch.h"
#include "driver.h"
#include "group_queue.h"
#include "guard.h"

namespace onehop::nccl {
namespace {

/// Collective. nullopt on all ranks if the memory of one of them cannot be shared.
std::optional<SymmetricBuffer> share(Communicator& communicator, void* data, std::size_t bytes) {
  try {
    return communicator.group().register_buffer(data, bytes);
  } catch (const Error& error) {
    const bool refused = error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::mismatch ||
                         error.code() == ErrorCode::unsupported;
    if (!refused) throw;  // the communicator has failed
    log::info("NCCL: rank {} of {}: a window is used as ordinary memory: {}", communicator.rank(),
              communicator.size(), error.message());
    return std::nullopt;
  }
}

}  // namespace

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
    if (out >= begin && out <= begin + buffer.size() &&
        bytes <= static_cast<std::size_t>(begin + buffer.size() - out))
      return true;
  }
  return false;
}

Result comm_window_register(Comm comm, void* data, std::size_t bytes, void** window, int flags) noexcept {
  return note_for_group(guarded("ncclCommWindowRegister", [&] {
    require(window != nullptr, "the place of the window is NULL");
    std::shared_ptr<Communicator> communicator = find(comm);
    *window = nullptr;
    if ((flags & kCollSymmetric) == 0) return Result::success;
    const auto run = [communicator, data, bytes, window] {
      std::optional<SymmetricBuffer> buffer = share(*communicator, data, bytes);
      if (!buffer) return;
      static std::atomic<std::uintptr_t> made{0};
      *window = reinterpret_cast<void*>(++made);
      communicator->windows().add(*window, *std::move(buffer));
    };
    const auto undo = [communicator, window] {
      if (*window != nullptr) (void)communicator->windows().remove(std::exchange(*window, nullptr));
    };
    set_up_or_queue({{run, undo, comm}});
    return Result::success;
  }));
}

Result comm_window_deregister(Comm comm, void* window) noexcept {
  return guarded("ncclCommWindowDeregister", [&] {
    const std::shared_ptr<Communicator> communicator = find(comm);
    const RelaxedCapture relaxed;
    require(window == nullptr || communicator->windows().remove(window),
            "{} is no window of this communicator", window);
    return Result::success;
  });
}

namespace accelerate {

Result comm_window_register(Comm comm, void* data, std::size_t bytes, void** window, int flags) noexcept {
  const Result result = forward<"ncclCommWindowRegister">(comm, data, bytes, window, flags);
  if (result != Result::success || (flags & kCollSymmetric) == 0 || !is_carried(comm))
    return note_for_group(result);
  return note_for_group(guarded("ncclCommWindowRegister", [&] {
    // In a group, NCCL gives the window at the end.
    const auto run = [communicator = find(comm), data, bytes, window] {
      if (*window == nullptr) return;
      std::optional<SymmetricBuffer> buffer = share(*communicator, data, bytes);
      if (buffer) communicator->windows().add(*window, *std::move(buffer));
    };
    set_up_or_queue({{.run = run, .parent = comm}});
    return result;
  }));
}

Result comm_window_deregister(Comm comm, void* window) noexcept {
  (void)guarded("ncclCommWindowDeregister", [&] {
    const RelaxedCapture relaxed;
    if (is_carried(comm)) (void)find(comm)->windows().remove(window);
    return Result::success;
  });
  return forward<"ncclCommWindowDeregister">(comm, window);
}

}  // namespace accelerate

}  // namespace onehop::nccl
