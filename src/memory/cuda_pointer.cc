// SPDX-License-Identifier: Apache-2.0
#include "memory/cuda_pointer.h"

#include <cstring>

#include "os/process_id.h"

namespace onehop::cuda_pointer {

void borrow_context(std::optional<CurrentDevice>& current) {
  const CudaDriver& driver = cuda_driver();
  CUcontext own = nullptr;
  check_cuda(driver.CtxGetCurrent(&own), "cuCtxGetCurrent");
  if (own != nullptr) return;
  for (int i = 0; i < cuda_device_count(); ++i) {
    unsigned flags = 0;
    int active = 0;
    check_cuda(driver.DevicePrimaryCtxGetState(cuda_device(DeviceId{i}), &flags, &active),
               "cuDevicePrimaryCtxGetState");
    if (active == 0) continue;
    current.emplace(DeviceId{i});
    return;
  }
}

bool no_answer(CUresult result) {
  return result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_CONTEXT ||
         result == CUDA_ERROR_NOT_FOUND || result == CUDA_ERROR_NOT_SUPPORTED;
}

MemoryKind kind_of(CUdeviceptr pointer) {
  const auto type = attribute<CUmemorytype>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer, CUmemorytype{});
  if (type == CUmemorytype{}) return MemoryKind::host;
  if (attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer, 0) != 0) return MemoryKind::managed;
  if (type == CU_MEMORYTYPE_HOST) return MemoryKind::pinned_host;
  // Test for a pool before VMM, because pools consist of VMM memory.
  if (attribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer, nullptr) != nullptr)
    return MemoryKind::pool;
  if (attribute<int>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pointer, 0) != 0)
    return MemoryKind::device;
  CUmemGenericAllocationHandle handle = 0;
  const CudaDriver& driver = cuda_driver();
  if (driver.MemRetainAllocationHandle(&handle, to_pointer(pointer)) == CUDA_SUCCESS) {
    check_cuda(driver.MemRelease(handle), "cuMemRelease");
    return MemoryKind::vmm;
  }
  return MemoryKind::other;
}

std::optional<Range> range_around(CUdeviceptr pointer) {
  Range range;
  const CUresult result = cuda_driver().MemGetAddressRange(&range.begin, &range.bytes, pointer);
  if (no_answer(result)) return std::nullopt;
  check_cuda(result, "cuMemGetAddressRange");
  return range;
}

int home_of(CUdeviceptr pointer) {
  return attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer, -1);
}

std::array<std::uint8_t, 16> uuid_of(DeviceId device) {
  CUuuid uuid{};
  check_cuda(cuda_driver().DeviceGetUuid(&uuid, cuda_device(device)), "cuDeviceGetUuid");
  std::array<std::uint8_t, 16> bytes{};
  std::memcpy(bytes.data(), uuid.bytes, bytes.size());
  return bytes;
}

IpcHandle locate(const void* pointer, std::size_t bytes, DeviceId home) {
  const CudaDriver& driver = cuda_driver();
  const CUdeviceptr at = address_of(pointer);
  const CurrentDevice owner(home);
  Range range;
  check_cuda(driver.MemGetAddressRange(&range.begin, &range.bytes, at), "cuMemGetAddressRange");
  IpcHandle handle;
  handle.offset = at - range.begin;
  require(bytes <= range.bytes - handle.offset,
          "cannot share {} bytes at {}: its allocation of {} bytes ends {} bytes after it", bytes, pointer,
          range.bytes, range.bytes - handle.offset);
  handle.process = os::process_id();
  unsigned long long id = 0;
  check_cuda(driver.PointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, range.begin),
             "cuPointerGetAttribute");
  handle.allocation = id;
  handle.address = range.begin;
  handle.allocation_bytes = range.bytes;
  handle.bytes = bytes;
  handle.device = uuid_of(home);
  return handle;
}

bool still_there(const IpcHandle& handle) {
  std::optional<CurrentDevice> current;
  borrow_context(current);
  // 0 is not an id: memory without one cannot be distinguished from later memory at the same address.
  return handle.allocation != 0 && attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                                                 handle.address, 0) == handle.allocation;
}

DeviceId confirm(const IpcHandle& handle) {
  std::optional<CurrentDevice> current;
  borrow_context(current);
  const int home = home_of(handle.address);
  // Query the range in the context that it belongs to: in another device's context the driver does not know
  // it.
  if (home >= 0) current.emplace(DeviceId{home});
  const std::optional<Range> range = range_around(handle.address);
  const auto id = attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, handle.address, 0);
  require(home >= 0 && range.has_value() && range->begin == handle.address &&
              range->bytes == handle.allocation_bytes && id == handle.allocation,
          "the {} bytes of this process's own memory that an IPC handle names are not allocated any more",
          handle.allocation_bytes);
  return DeviceId{home};
}

}  // namespace onehop::cuda_pointer
