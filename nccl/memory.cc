// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
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

Result mem_alloc(void** data, std::size_t bytes) noexcept {
  return guarded("ncclMemAlloc", [&] {
    require(data != nullptr, "ptr is NULL");
    *data = nullptr;
    if (bytes == 0) return Result::success;
    const DeviceId device = current_device();
    *data = device == DeviceId::host ? std::malloc(bytes) : allocate_on(device, bytes);
    if (*data == nullptr) fail(ErrorCode::out_of_resources, "no {} bytes of memory", bytes);
    return Result::success;
  });
}

Result mem_free(void* data) noexcept {
  return guarded("ncclMemFree", [&] {
    if (data == nullptr) return Result::success;
    if (current_device() == DeviceId::host) {
      std::free(data);
    } else {
      free_on_device(data);
    }
    return Result::success;
  });
}

Result comm_register(Comm comm, void* /*data*/, std::size_t /*bytes*/, void** handle) noexcept {
  return guarded("ncclCommRegister", [&] {
    require(handle != nullptr, "the place of the handle is NULL");
    (void)find(comm);
    *handle = nullptr;
    return Result::success;
  });
}

Result comm_deregister(Comm comm, void* handle) noexcept {
  return guarded("ncclCommDeregister", [&] {
    (void)find(comm);
    require(handle == nullptr, "{} is no handle of this communicator", handle);
    return Result::success;
  });
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
