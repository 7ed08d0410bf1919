// SPDX-License-Identifier: Apache-2.0
// What the driver knows about a pointer, whoever allocated what it points to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "onehop/device_memory.h"
#include "onehop/types.h"

#include "base/check.h"
#include "driver/device.h"

namespace onehop::cuda_pointer {

[[nodiscard]] inline CUdeviceptr address_of(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

/// Some context for questions about pointers: on a thread that has none the driver may refuse them. Only one
/// that exists already, since making one takes hundreds of megabytes of a device this process may not use.
void borrow_context(std::optional<CurrentDevice>& current);

/// How the driver says that it has no answer about a pointer, as opposed to being broken.
[[nodiscard]] bool no_answer(CUresult result);

/// An attribute of a pointer; `otherwise` when the driver does not know the pointer or the attribute.
template <class T>
[[nodiscard]] T attribute(CUpointer_attribute which, CUdeviceptr pointer, T otherwise) {
  T value{};
  const CUresult result = cuda_driver().PointerGetAttribute(&value, which, pointer);
  if (no_answer(result)) return otherwise;
  check_cuda(result, "cuPointerGetAttribute");
  return value;
}

[[nodiscard]] MemoryKind kind_of(CUdeviceptr pointer);

struct Range {
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
};
/// Of the allocation around `pointer`, asked for in the context that it belongs to.
[[nodiscard]] std::optional<Range> range_around(CUdeviceptr pointer);

/// The device that the memory is on; -1 when the driver does not know.
[[nodiscard]] int home_of(CUdeviceptr pointer);

/// As handles carry it.
[[nodiscard]] std::array<std::uint8_t, 16> uuid_of(DeviceId device);

/// Where memory of this process lies: a handle without the driver's part of it. Error{invalid_argument}
/// unless all of it lies in one allocation of `home`.
[[nodiscard]] IpcHandle locate(const void* pointer, std::size_t bytes, DeviceId home);

/// Whether memory of this process is still the allocation that `place` was made of. Its addresses may have
/// been given to another since; the driver's ids are never used again. One question to the driver.
[[nodiscard]] bool still_there(const IpcHandle& place);

/// The device of memory of this very process. Nothing of the handle is believed that the driver does not
/// confirm: Error{invalid_argument}.
[[nodiscard]] DeviceId confirm(const IpcHandle& place);

}  // namespace onehop::cuda_pointer
