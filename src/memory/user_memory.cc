// SPDX-License-Identifier: Apache-2.0
#include "memory/user_memory.h"

#include <optional>
#include <utility>

#include "memory/cuda_pointer.h"
#include "memory/vmm.h"
#include "os/process_id.h"

namespace onehop {
namespace {

/// Memory at its existing address, kept mapped by `owner`.
class BorrowedBlock final : public Block {
 public:
  BorrowedBlock(std::byte* data, std::size_t bytes, std::shared_ptr<const void> owner)
      : data_(data), bytes_(bytes), owner_(std::move(owner)) {}
  [[nodiscard]] std::byte* data() const override { return data_; }
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
  std::shared_ptr<const void> owner_;
};

SharedUserMemory share_by_descriptor(const void* data, std::size_t bytes, DeviceId home) {
  const CurrentDevice current(home);
  SharedUserMemory shared{
      .memory = {.place = cuda_pointer::locate(data, bytes, home), .has_descriptor = true}, .descriptor = {}};
  const vmm::Physical physical = vmm::Physical::behind(data);
  require(
      (physical.allocation_properties().requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0,
      "cannot share {}: this memory of cuMemCreate was made without "
      "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR; ask for it, or use cudaMalloc or onehop::DeviceMemory",
      data);
  shared.descriptor = physical.export_fd();
  return shared;
}

}  // namespace

SharedUserMemory share_user_memory(const void* data, std::size_t bytes, DeviceId device) {
  require(bytes > 0, "cannot share 0 bytes at {}", data);
  std::optional<CurrentDevice> current;
  cuda_pointer::borrow_context(current);
  const CUdeviceptr at = cuda_pointer::address_of(data);
  const MemoryKind kind = cuda_pointer::kind_of(at);
  if (kind == MemoryKind::device || kind == MemoryKind::vmm) {
    const int home = cuda_pointer::home_of(at);
    require(home == device.value, "cannot share {}: it is memory of device {}, and this rank's is device {}",
            data, home, device.value);
  }
  if (kind == MemoryKind::vmm) return share_by_descriptor(data, bytes, device);
  return {.memory = {.place = export_ipc(data, bytes), .has_descriptor = false}, .descriptor = {}};
}

std::shared_ptr<Block> map_user_memory(const UserMemory& memory, os::UniqueFd descriptor,
                                       DeviceId for_device) {
  const IpcHandle& handle = memory.place;
  const auto borrow = [&](std::byte* data, std::shared_ptr<const void> owner) {
    return std::make_shared<BorrowedBlock>(data, handle.bytes, std::move(owner));
  };
  if (!memory.has_descriptor) {
    auto mapping = std::make_shared<const IpcMapping>(IpcMapping::open(handle, for_device));
    return borrow(mapping->data(), mapping);
  }
  if (handle.process == os::process_id()) {
    const DeviceId home = cuda_pointer::confirm(handle);
    vmm::grant_range(handle.address, handle.allocation_bytes, for_device, home);
    return borrow(to_pointer<std::byte>(handle.address + handle.offset), nullptr);
  }
  auto mapped = std::make_shared<const vmm::Memory>(
      vmm::Memory::import_fd(descriptor.get(), handle.allocation_bytes, for_device));
  return borrow(mapped->data() + handle.offset, mapped);
}

bool still_there(const UserMemory& memory) {
  return cuda_pointer::still_there(memory.place);
}

}  // namespace onehop
