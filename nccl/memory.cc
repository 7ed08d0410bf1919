// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <cstdlib>
#include <string_view>

#include "base/check.h"
#include "communicator.h"
#include "driver.h"
#include "guard.h"

namespace onehop::nccl {
namespace {

Result register_nothing(std::string_view function, Comm comm, void** handle) noexcept {
  return guarded(function, [&] {
    require(handle != nullptr, "the place of the handle is NULL");
    (void)find(comm);
    *handle = nullptr;
    return Result::success;
  });
}

/// Programs have only got NULL.
Result deregister_nothing(std::string_view function, Comm comm, const void* handle) noexcept {
  return guarded(function, [&] {
    (void)find(comm);
    require(handle == nullptr, "{} is no handle of this communicator", handle);
    return Result::success;
  });
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
  return register_nothing("ncclCommRegister", comm, handle);
}

Result comm_deregister(Comm comm, void* handle) noexcept {
  return deregister_nothing("ncclCommDeregister", comm, handle);
}

Result comm_window_register(Comm comm, void* /*data*/, std::size_t /*bytes*/, void** window,
                            int /*flags*/) noexcept {
  return register_nothing("ncclCommWindowRegister", comm, window);
}

Result comm_window_deregister(Comm comm, void* window) noexcept {
  return deregister_nothing("ncclCommWindowDeregister", comm, window);
}

}  // namespace onehop::nccl
