// SPDX-License-Identifier: Apache-2.0
// CUDA allows an owner to free its memory only when no peer maps it any more, but does not report when that
// is the case. Therefore a pipe accompanies each handle, and every process that maps the memory holds its
// write end. When the owner's read end reports that no write end is open, even because a peer died, the
// memory may be freed.
#include "memory/cuda_ipc_backend.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "onehop/device_memory.h"
#include "onehop/peer_access.h"

#include "base/check.h"
#include "base/log.h"
#include "base/units.h"
#include "driver/device.h"
#include "memory/vmm.h"
#include "os/fork_guard.h"

namespace onehop {
namespace {

// Smaller allocations share blocks of this size, so peers would also map memory that is not part of the
// allocation.
constexpr std::size_t kGranularity = std::size_t{2} << 20;

struct Pipe {
  os::UniqueFd reading;
  os::UniqueFd writing;
};

Pipe make_pipe() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0)
    fail_errno(errno, "creating a pipe that shows whether peers map device memory");
  return {os::UniqueFd(ends[0]), os::UniqueFd(ends[1])};
}

/// Memory of cuMemAlloc, freed by the destructor.
class PlainMemory {
 public:
  PlainMemory(DeviceId device, std::size_t bytes) : device_(device) {
    const CurrentDevice current(device);
    const CUresult result = cuda_driver().MemAlloc(&at_, bytes);
    if (result == CUDA_SUCCESS) return;
    fail_cuda(result, fmt::format("allocating {} of memory for CUDA IPC on device {}", format_size(bytes),
                                  device.value));
  }
  PlainMemory(PlainMemory&& other) noexcept : device_(other.device_), at_(std::exchange(other.at_, 0)) {}
  PlainMemory& operator=(PlainMemory&&) = delete;
  ~PlainMemory() {
    if (at_ == 0) return;
    try {
      // A forked child has no driver and nothing to free.
      if (find_cuda_driver() == nullptr) return;
      const CurrentDevice current(device_);
      check_cuda(cuda_driver().MemFree(at_), "cuMemFree");
    } catch (const std::exception& error) {
      log::debug("freeing memory for CUDA IPC: {}", error.what());
    }
  }

  [[nodiscard]] DeviceId device() const { return device_; }
  [[nodiscard]] CUdeviceptr at() const { return at_; }
  /// Leaks the memory: it is never freed.
  void keep() { at_ = 0; }

 private:
  DeviceId device_;
  CUdeviceptr at_ = 0;
};

/// Memory, and the pipe that shows whether peers map it.
struct Lent {
  PlainMemory memory;
  os::UniqueFd reading;

  [[nodiscard]] bool returned() const {
    pollfd entry{.fd = reading.get(), .events = 0, .revents = 0};
    return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
  }
};

/// Memory whose owners have been destroyed while peers still map it.
class Abandoned {
 public:
  static Abandoned& of_process() {
    static auto& instance = *new Abandoned;  // leaked: memory may be freed during static destruction
    return instance;
  }

  void add(Lent lent) {
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(lent));
  }
  void free_returned() {
    std::vector<Lent> returned;  // freed after the lock is released
    std::vector<Lent> rest;
    const std::lock_guard lock(mutex_);
    returned.reserve(all_.size());
    rest.reserve(all_.size());
    for (Lent& each : all_) (each.returned() ? returned : rest).push_back(std::move(each));
    all_.swap(rest);
  }

 private:
  std::mutex mutex_;
  std::vector<Lent> all_;
};

class OwnBlock final : public Block {
 public:
  OwnBlock(Lent lent, std::size_t bytes) : lent_(std::move(lent)), bytes_(bytes) {}
  ~OwnBlock() override {
    try {
      if (!lent_.returned()) Abandoned::of_process().add(std::move(lent_));
      Abandoned::of_process().free_returned();
    } catch (const std::exception& error) {
      log::debug("releasing memory for CUDA IPC: {}", error.what());
    }
  }
  [[nodiscard]] std::byte* data() const override { return to_pointer<std::byte>(lent_.memory.at()); }
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }
  [[nodiscard]] DeviceId home() const { return lent_.memory.device(); }

 private:
  Lent lent_;
  std::size_t bytes_;
};

class PeersBlock final : public Block {
 public:
  PeersBlock(IpcMapping mapping, os::UniqueFd writing)
      : writing_(std::move(writing)), guard_(writing_.get()), mapping_(std::move(mapping)) {}
  [[nodiscard]] std::byte* data() const override { return mapping_.data(); }
  [[nodiscard]] std::size_t bytes() const override { return mapping_.bytes(); }

 private:
  // Destruction order: the mapping is closed before the pipe, because the owner may then free the memory.
  os::UniqueFd writing_;
  os::ForkGuard guard_;
  IpcMapping mapping_;
};

class CudaIpcBackend final : public MemoryBackend {
 public:
  CudaIpcBackend(DeviceId device, Duration patience) : device_(device), patience_(patience) {}

  [[nodiscard]] std::size_t granularity() const override { return kGranularity; }

  [[nodiscard]] Allocation create(std::size_t bytes) const override {
    Abandoned::of_process().free_returned();
    const std::size_t rounded = vmm::round_up(bytes, kGranularity);
    Pipe pipe = make_pipe();
    PlainMemory memory(device_, rounded);
    try {
      vmm::zero_range(memory.at(), rounded, device_, patience_);
    } catch (const Error& error) {
      // The operation is still queued on the device.
      if (error.code() == ErrorCode::timeout) memory.keep();
      throw;
    }
    MemoryHandle handle{.descriptor = std::move(pipe.writing),
                        .bytes = export_ipc(to_pointer(memory.at()), rounded).to_bytes()};
    auto block = std::make_shared<OwnBlock>(
        Lent{.memory = std::move(memory), .reading = std::move(pipe.reading)}, rounded);
    return {std::move(block), std::move(handle)};
  }

  [[nodiscard]] std::shared_ptr<Block> import(MemoryHandle handle, std::size_t bytes) const override {
    const IpcHandle shared = IpcHandle::from_bytes(handle.bytes);
    const std::size_t rounded = vmm::round_up(bytes, kGranularity);
    if (shared.bytes != rounded || !handle.descriptor) {
      fail(ErrorCode::protocol, "a peer's IPC handle is for {} bytes instead of {}{}", shared.bytes, rounded,
           handle.descriptor ? "" : ", and its pipe is missing");
    }
    return std::make_shared<PeersBlock>(IpcMapping::open(shared, device_), std::move(handle.descriptor));
  }

  void adopt(Block& block) const override {
    const auto* const own = dynamic_cast<OwnBlock*>(&block);
    require(own != nullptr, "memory that is not a GPU's cannot be shared with device {}", device_.value);
    // Use the process-wide cache, because it shares the enabled access, and CUDA's limit, with all other
    // users.
    if (!PeerAccess::of_process().can_access(device_, own->home()))
      vmm::fail_without_peer(device_, own->home());
  }

 private:
  DeviceId device_;
  Duration patience_;
};

}  // namespace

std::unique_ptr<MemoryBackend> make_cuda_ipc_backend(DeviceId device, Duration patience) {
  return std::make_unique<CudaIpcBackend>(device, patience);
}

}  // namespace onehop
