// SPDX-License-Identifier: Apache-2.0
// The driver's information about a pointer, for memory of any allocator.
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

/// Makes some existing context current for queries about pointers, which the driver may reject on a thread
/// without one. Never creates a context: that takes hundreds of megabytes on a device that this process may
/// not use.
void borrow_context(std::optional<CurrentDevice>& current);

/// Whether a result means that the driver does not know the pointer or attribute, as opposed to a driver
/// failure.
[[nodiscard]] bool no_answer(CUresult result);

/// Returns an attribute of a pointer, or `otherwise` if the driver does not know the pointer or the
/// attribute.
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
/// Returns the range of the allocation that contains `pointer`. The allocation's context must be current.
[[nodiscard]] std::optional<Range> range_around(CUdeviceptr pointer);

/// Returns the device of the memory; -1 if the driver does not know it.
[[nodiscard]] int home_of(CUdeviceptr pointer);

/// The device's UUID in the format of handles.
[[nodiscard]] std::array<std::uint8_t, 16> uuid_of(DeviceId device);

/// Describes memory of this process as a handle without the driver's part. Throws Error{invalid_argument}
/// unless all of it lies in one allocation on `home`.
[[nodiscard]] IpcHandle locate(const void* pointer, std::size_t bytes, DeviceId home);

/// Whether the memory of this process is still the allocation that `handle` describes. Its address may have
/// been reused since, but the driver never reuses allocation ids. Makes one driver query.
[[nodiscard]] bool still_there(const IpcHandle& handle);

/// Returns the device of a handle that this process exported. Checks all fields with the driver and throws
/// Error{invalid_argument} if they do not match.
[[nodiscard]] DeviceId confirm(const IpcHandle& handle);

}  // namespace onehop::cuda_pointer
