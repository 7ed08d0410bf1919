// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "memory/backend.h"
#include "os/mapping.h"
#include "os/memfd.h"

namespace onehop {
namespace {

class HostBlock final : public Block {
 public:
  explicit HostBlock(os::Mapping mapping) : mapping_(std::move(mapping)) {}
  [[nodiscard]] std::byte* data() const override { return mapping_.data(); }
  [[nodiscard]] std::size_t bytes() const override { return mapping_.bytes(); }

 private:
  os::Mapping mapping_;
};

class HostBackend final : public MemoryBackend {
 public:
  [[nodiscard]] std::size_t granularity() const override { return os::page_size(); }

  [[nodiscard]] Allocation create(std::size_t bytes) const override {
    const std::size_t rounded = round_up(bytes);
    os::UniqueFd fd = os::create_sealed_memfd("onehop", rounded);
    auto block = std::make_shared<HostBlock>(os::Mapping::map_shared(fd.get(), rounded, "symmetric memory"));
    return {std::move(block), {.descriptor = std::move(fd)}};
  }

  [[nodiscard]] std::shared_ptr<Block> import(MemoryHandle handle, std::size_t bytes) const override {
    const std::size_t rounded = round_up(bytes);
    os::require_sealed_memfd(handle.descriptor.get(), rounded);
    return std::make_shared<HostBlock>(
        os::Mapping::map_shared(handle.descriptor.get(), rounded, "a peer's symmetric memory"));
  }

  void adopt(Block&) const override {}  // one address space, and no device that needs a grant

 private:
  [[nodiscard]] std::size_t round_up(std::size_t bytes) const {
    const std::size_t unit = granularity();
    const std::size_t rounded = (bytes + unit - 1) / unit * unit;
    require(bytes > 0 && rounded >= bytes && rounded <= (std::size_t{1} << 48),
            "cannot allocate {} bytes of symmetric memory", bytes);
    return rounded;
  }
};

}  // namespace

std::unique_ptr<MemoryBackend> make_host_backend() {
  return std::make_unique<HostBackend>();
}

}  // namespace onehop
