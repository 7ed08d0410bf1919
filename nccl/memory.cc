// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <fmt/core.h>

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

/// Every handle of a program is NULL.
Result deregister_nothing(std::string_view function, Comm comm, const void* handle) noexcept {
  return guarded(function, [&] {
    (void)find(comm);
    require(handle == nullptr, "{} is no handle of this communicator", handle);
    return Result::success;
  });
}

/// Like `guarded`, for what asks CUDA.
template <class Body>
Result guarded_cuda(std::string_view function, const Body& body) noexcept {
  return guarded(function, [&] {
    try {
      return body();
    } catch (const Error& error) {
      return fail(Result::unhandled_cuda_error, fmt::format("{}: {}", function, error.message()));
    }
  });
}

}  // namespace

Result mem_alloc(void** data, std::size_t bytes) noexcept {
  constexpr std::string_view kFunction = "ncclMemAlloc";
  if (data == nullptr) return fail(Result::invalid_argument, "ncclMemAlloc: ptr is NULL");
  *data = nullptr;
  if (bytes == 0) return Result::success;
  return guarded(kFunction, [&] {
    const DeviceId device = current_device();
    if (device != DeviceId::host) {
      return guarded_cuda(kFunction, [&] {
        *data = allocate_on(device, bytes);
        return Result::success;
      });
    }
    *data = std::malloc(bytes);
    if (*data == nullptr) fail(ErrorCode::out_of_resources, "no {} bytes of memory", bytes);
    return Result::success;
  });
}

Result mem_free(void* data) noexcept {
  constexpr std::string_view kFunction = "ncclMemFree";
  if (data == nullptr) return Result::success;
  return guarded(kFunction, [&] {
    const DeviceId device = current_device();
    if (device != DeviceId::host) {
      return guarded_cuda(kFunction, [&] {
        free_on(device, data);
        return Result::success;
      });
    }
    std::free(data);
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
