// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "onehop/device_memory.h"

#include "base/check.h"
#include "driver/device.h"
#include "memory/backend.h"
#include "memory/cuda_ipc_backend.h"
#include "memory/vmm.h"

namespace onehop {
namespace {

class CudaBlock final : public Block {
 public:
  explicit CudaBlock(vmm::Memory memory) : memory_(std::move(memory)) {}
  [[nodiscard]] std::byte* data() const override { return memory_.data(); }
  [[nodiscard]] std::size_t bytes() const override { return memory_.bytes(); }
  [[nodiscard]] const vmm::Memory& memory() const { return memory_; }

 private:
  vmm::Memory memory_;
};

/// Memory of the driver's virtual memory management, shared by a descriptor or a fabric handle.
class CudaBackend final : public MemoryBackend {
 public:
  CudaBackend(DeviceId device, bool fabric, Duration patience)
      : request_{.device = device,
                 .handles = fabric ? CU_MEM_HANDLE_TYPE_FABRIC : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
        fabric_(fabric),
        patience_(patience),
        granularity_(vmm::granularity(request_)) {}

  [[nodiscard]] std::size_t granularity() const override { return granularity_; }

  [[nodiscard]] Allocation create(std::size_t bytes) const override {
    auto block = std::make_shared<CudaBlock>(vmm::create_zeroed(request_, bytes, patience_));
    MemoryHandle handle;
    if (fabric_) {
      const FabricHandle raw = block->memory().export_fabric();
      handle.bytes.assign(reinterpret_cast<const char*>(raw.data()), raw.size());
    } else {
      handle.descriptor = block->memory().export_fd();
    }
    return {std::move(block), std::move(handle)};
  }

  [[nodiscard]] std::shared_ptr<Block> import(MemoryHandle handle, std::size_t bytes) const override {
    if (!fabric_) {
      return std::make_shared<CudaBlock>(
          vmm::Memory::import_fd(handle.descriptor.get(), bytes, request_.device));
    }
    FabricHandle raw;
    if (handle.bytes.size() != raw.size()) {
      fail(ErrorCode::protocol, "a peer's fabric handle has {} bytes instead of {}", handle.bytes.size(),
           raw.size());
    }
    std::memcpy(raw.data(), handle.bytes.data(), raw.size());
    return std::make_shared<CudaBlock>(vmm::Memory::import_fabric(raw, bytes, request_.device));
  }

  void adopt(Block& block) const override {
    const auto* const own = dynamic_cast<CudaBlock*>(&block);
    require(own != nullptr, "memory that is not a GPU's cannot be shared with device {}",
            request_.device.value);
    own->memory().grant(request_.device);
  }

 private:
  vmm::Request request_;
  bool fabric_;
  Duration patience_;
  std::size_t granularity_;
};

}  // namespace

std::unique_ptr<MemoryBackend> make_cuda_backend(DeviceId device, ShareBy share_by, Duration patience) {
  require_cuda_device(device);
  switch (share_by) {
    case ShareBy::posix_fd:
    case ShareBy::fabric:
      return std::make_unique<CudaBackend>(device, share_by == ShareBy::fabric, patience);
    case ShareBy::ipc:
      return make_cuda_ipc_backend(device, patience);
    case ShareBy::automatic:
      break;
  }
  fail(ErrorCode::invalid_argument,
       "memory of device {} cannot be allocated before its handle type is chosen", device.value);
}

}  // namespace onehop
