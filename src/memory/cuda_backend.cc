#include "base/check.h"
#include "driver/device.h"
#include "memory/backend.h"
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

class CudaBackend final : public MemoryBackend {
 public:
  CudaBackend(DeviceId device, Duration patience)
      : request_{.device = device}, patience_(patience), granularity_(vmm::granularity(request_)) {}

  [[nodiscard]] std::size_t granularity() const override { return granularity_; }

  [[nodiscard]] Allocation create(std::size_t bytes) const override {
    auto block = std::make_shared<CudaBlock>(vmm::create_zeroed(request_, bytes, patience_));
    os::UniqueFd handle = block->memory().export_fd();
    return {std::move(block), std::move(handle)};
  }

  [[nodiscard]] std::shared_ptr<Block> import(os::UniqueFd handle, std::size_t bytes) const override {
    return std::make_shared<CudaBlock>(vmm::Memory::import_fd(handle.get(), bytes, request_.device));
  }

  void adopt(Block& block) const override {
    const auto* const own = dynamic_cast<CudaBlock*>(&block);
    require(own != nullptr, "memory that is not a GPU's cannot be shared with device {}",
            request_.device.value);
    own->memory().grant(request_.device);
  }

 private:
  vmm::Request request_;
  Duration patience_;
  std::size_t granularity_;
};

}  // namespace

std::unique_ptr<MemoryBackend> make_cuda_backend(DeviceId device, Duration patience) {
  require_cuda_device(device);
  return std::make_unique<CudaBackend>(device, patience);
}

}  // namespace onehop
