// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <cstdlib>

#include "base/check.h"
#include "communicator.h"
#include "driver.h"
#include "guard.h"

namespace onehop::nccl {
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

}  // namespace onehop::nccl
