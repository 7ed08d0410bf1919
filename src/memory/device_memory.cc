// SPDX-License-Identifier: Apache-2.0
#include "onehop/device_memory.h"

#include "base/check.h"
#include "driver/device.h"
#include "driver/share_support.h"
#include "memory/vmm.h"

namespace onehop {
namespace {

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
constexpr auto kFabric = CU_MEM_HANDLE_TYPE_FABRIC;

/// Returns the handle types that the memory must support: a set of the driver's bits.
CUmemAllocationHandleType handle_types(ShareBy share_by, DeviceId device) {
  switch (share_by) {
    case ShareBy::posix_fd:
      return kDescriptor;
    case ShareBy::fabric:
      if (cuda_attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED) == 0) {
        fail(ErrorCode::unsupported, "device {} has no fabric handles; use ShareBy::posix_fd", device.value);
      }
      return kFabric;
    case ShareBy::ipc:
      fail(ErrorCode::invalid_argument,
           "device memory is not shared by CUDA IPC, which is for memory of cudaMalloc: see export_ipc");
    case ShareBy::automatic:
      break;
  }
  // Always include descriptors. The allocation would fail if it requested fabric handles that are not
  // permitted.
  return fabric_support(device).usable ? static_cast<CUmemAllocationHandleType>(kDescriptor | kFabric)
                                       : kDescriptor;
}

}  // namespace

class DeviceMemory::State {
 public:
  State(vmm::Memory mapped, std::size_t asked, DeviceId reached_from, CUmemAllocationHandleType types)
      : memory(std::move(mapped)), bytes(asked), device(reached_from), handles(types) {}

  [[nodiscard]] bool travels_as(CUmemAllocationHandleType type) const { return (handles & type) != 0; }

  vmm::Memory memory;
  std::size_t bytes;
  DeviceId device;
  CUmemAllocationHandleType handles;
};

DeviceMemory::DeviceMemory(std::shared_ptr<const State> state) : state_(std::move(state)) {}

const DeviceMemory::State& DeviceMemory::state() const {
  require(state_ != nullptr, "this device memory was moved from");
  return *state_;
}

DeviceMemory DeviceMemory::create(DeviceId device, std::size_t bytes, DeviceMemoryOptions options) {
  require_cuda_device(device);
  const CUmemAllocationHandleType types = handle_types(options.share_by, device);
  const vmm::Request request{.device = device, .handles = types, .gpu_direct_rdma = options.gpu_direct_rdma};
  return DeviceMemory(std::make_shared<const State>(vmm::create_zeroed(request, bytes, kDefaultTimeout),
                                                    bytes, device, types));
}

DeviceMemory DeviceMemory::import_fd(int fd, std::size_t bytes, DeviceId for_device) {
  return DeviceMemory(std::make_shared<const State>(vmm::Memory::import_fd(fd, bytes, for_device), bytes,
                                                    for_device, kDescriptor));
}

DeviceMemory DeviceMemory::import_fabric(const FabricHandle& handle, std::size_t bytes, DeviceId for_device) {
  return DeviceMemory(std::make_shared<const State>(vmm::Memory::import_fabric(handle, bytes, for_device),
                                                    bytes, for_device, kFabric));
}

std::size_t DeviceMemory::bytes() const {
  return state().bytes;
}
std::byte* DeviceMemory::data() const {
  return state().memory.data();
}
DeviceId DeviceMemory::device() const {
  return state().device;
}

int DeviceMemory::export_fd() const {
  require(state().travels_as(kDescriptor),
          "this device memory was made for fabric handles and has no descriptor: use export_fabric");
  return state().memory.export_fd().release();
}

FabricHandle DeviceMemory::export_fabric() const {
  require(state().travels_as(kFabric),
          "this device memory has no fabric handle, only a descriptor: use export_fd, or create it with "
          "ShareBy::fabric (onehop doctor says whether this machine permits fabric handles)");
  return state().memory.export_fabric();
}

void DeviceMemory::grant(DeviceId device) const {
  state().memory.grant(device);
}
bool DeviceMemory::granted(DeviceId device) const {
  return state().memory.granted(device);
}

}  // namespace onehop
