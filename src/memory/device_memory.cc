#include "onehop/device_memory.h"

#include "base/check.h"
#include "base/log.h"
#include "driver/device.h"
#include "memory/vmm.h"

namespace onehop {
namespace {

CUmemAllocationHandleType handle_type(ShareBy share_by, DeviceId device) {
  if (share_by == ShareBy::fabric) {
    if (cuda_attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED) == 0) {
      fail(ErrorCode::unsupported, "device {} has no fabric handles; use ShareBy::posix_fd", device.value);
    }
    return CU_MEM_HANDLE_TYPE_FABRIC;
  }
  if (share_by == ShareBy::automatic) {
    log::debug(
        "device {}: memory is shared by descriptors, since inside one machine fabric handles add nothing",
        device.value);
  }
  return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

}  // namespace

class DeviceMemory::State {
 public:
  State(vmm::Memory mapped, std::size_t asked, DeviceId reached_from, CUmemAllocationHandleType type)
      : memory(std::move(mapped)), bytes(asked), device(reached_from), handle(type) {}

  vmm::Memory memory;
  std::size_t bytes;
  DeviceId device;
  CUmemAllocationHandleType handle;
};

DeviceMemory::DeviceMemory(std::shared_ptr<const State> state) : state_(std::move(state)) {}

const DeviceMemory::State& DeviceMemory::state() const {
  require(state_ != nullptr, "this device memory was moved from");
  return *state_;
}

DeviceMemory DeviceMemory::create(DeviceId device, std::size_t bytes, DeviceMemoryOptions options) {
  require_cuda_device(device);
  const CUmemAllocationHandleType type = handle_type(options.share_by, device);
  const vmm::Request request{.device = device, .handle = type, .gpu_direct_rdma = options.gpu_direct_rdma};
  return DeviceMemory(std::make_shared<const State>(vmm::create_zeroed(request, bytes, kDefaultTimeout),
                                                    bytes, device, type));
}

DeviceMemory DeviceMemory::import_fd(int fd, std::size_t bytes, DeviceId for_device) {
  return DeviceMemory(std::make_shared<const State>(vmm::Memory::import_fd(fd, bytes, for_device), bytes,
                                                    for_device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
}

DeviceMemory DeviceMemory::import_fabric(const FabricHandle& handle, std::size_t bytes, DeviceId for_device) {
  return DeviceMemory(std::make_shared<const State>(vmm::Memory::import_fabric(handle, bytes, for_device),
                                                    bytes, for_device, CU_MEM_HANDLE_TYPE_FABRIC));
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
  require(state().handle == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
          "this device memory was made for fabric handles and has no descriptor: use export_fabric");
  return state().memory.export_fd().release();
}

FabricHandle DeviceMemory::export_fabric() const {
  require(state().handle == CU_MEM_HANDLE_TYPE_FABRIC,
          "this device memory was made for descriptors and has no fabric handle: use export_fd, or create it "
          "with ShareBy::fabric");
  return state().memory.export_fabric();
}

void DeviceMemory::grant(DeviceId device) const {
  state().memory.grant(device);
}
bool DeviceMemory::granted(DeviceId device) const {
  return state().memory.granted(device);
}

}  // namespace onehop
