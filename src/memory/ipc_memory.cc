// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "onehop/device_memory.h"
#include "onehop/peer_access.h"

#include "base/check.h"
#include "base/log.h"
#include "memory/cuda_pointer.h"
#include "memory/vmm.h"
#include "os/process_id.h"

namespace onehop {
namespace {

/// Suggests an alternative for memory that CUDA IPC cannot share.
const char* remedy(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::host:
    case MemoryKind::pinned_host:
      return "memory of the CPU is shared with a group on DeviceId::host, or as a memfd through IpcChannel";
    case MemoryKind::managed:
      return "managed memory cannot be shared between processes; use cudaMalloc or onehop::DeviceMemory";
    case MemoryKind::pool:
      return "use cudaMalloc or onehop::DeviceMemory instead of cudaMallocAsync";
    case MemoryKind::vmm:
      return "use onehop::DeviceMemory and pass its descriptor; with PyTorch set "
             "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False";
    default:
      return "only the process that allocated memory can share it, and only where CUDA IPC works (not on "
             "every "
             "virtual machine); onehop::DeviceMemory needs no CUDA IPC";
  }
}

/// Returns the device with this UUID if it is visible to this process.
std::optional<DeviceId> find_device(const std::array<std::uint8_t, 16>& uuid) {
  for (int i = 0; i < cuda_device_count(); ++i) {
    if (cuda_pointer::uuid_of(DeviceId{i}) == uuid) return DeviceId{i};
  }
  return std::nullopt;
}

/// Identifies an allocation by process and id, and the device for which it was opened.
using Key = std::tuple<std::array<std::uint8_t, 16>, std::uint64_t, std::array<std::uint8_t, 64>, int>;
struct Opened {
  CUdeviceptr base = 0;
  int count = 0;
};
struct Table {
  std::mutex mutex;
  std::map<Key, Opened> opened;
};
Table& table() {
  static auto& instance = *new Table;  // leaked: mappings may be destroyed during static destruction
  return instance;
}

/// One use of an opened allocation.
class Use {
 public:
  Use(const IpcHandle& handle, DeviceId device)
      : key_(handle.process, handle.allocation, handle.handle, device.value) {
    Table& all = table();
    // Held while the driver opens and closes, so that an allocation is never opened twice.
    const std::lock_guard lock(all.mutex);
    const auto at = all.opened.try_emplace(key_).first;
    try {
      if (at->second.count == 0) at->second.base = open(handle, device);
    } catch (...) {
      all.opened.erase(at);
      throw;
    }
    ++at->second.count;
    base_ = at->second.base;
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    Table& all = table();
    const std::lock_guard lock(all.mutex);
    const auto at = all.opened.find(key_);
    if (--at->second.count > 0) return;
    all.opened.erase(at);
    close(base_, DeviceId{std::get<int>(key_)});
  }
  [[nodiscard]] CUdeviceptr base() const { return base_; }

 private:
  static CUdeviceptr open(const IpcHandle& handle, DeviceId device) {
    CUipcMemHandle raw{};
    static_assert(sizeof raw.reserved == sizeof handle.handle);
    std::memcpy(raw.reserved, handle.handle.data(), sizeof raw.reserved);
    const CurrentDevice current(device);
    CUdeviceptr base = 0;
    const CUresult result = cuda_driver().IpcOpenMemHandle(&base, raw, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result != CUDA_SUCCESS) {
      fail_cuda(result, fmt::format("opening {} bytes of another process's memory for device {} (does that "
                                    "process still run, and is the memory still allocated?)",
                                    handle.allocation_bytes, device.value));
    }
    return base;
  }
  static void close(CUdeviceptr base, DeviceId device) noexcept {
    try {
      const CurrentDevice current(device);
      check_cuda(cuda_driver().IpcCloseMemHandle(base), "cuIpcCloseMemHandle");
    } catch (const std::exception& error) {
      // In a forked child, or without the driver, nothing remains to be closed.
      log::debug("closing another process's memory: {}", error.what());
    }
  }

  Key key_;
  CUdeviceptr base_ = 0;
};

/// Memory of this process itself, which CUDA IPC refuses to open.
std::byte* own_memory(const IpcHandle& handle, DeviceId for_device) {
  const DeviceId home = cuda_pointer::confirm(handle);
  // Use the process-wide cache, because it shares the enabled access, and CUDA's limit, with all other users.
  if (!PeerAccess::of_process().can_access(for_device, home)) vmm::fail_without_peer(for_device, home);
  return to_pointer<std::byte>(handle.address + handle.offset);
}

}  // namespace

MemoryKind memory_kind(const void* pointer) {
  if (find_cuda_driver() == nullptr || pointer == nullptr) return MemoryKind::host;
  std::optional<CurrentDevice> current;
  cuda_pointer::borrow_context(current);
  return cuda_pointer::kind_of(cuda_pointer::address_of(pointer));
}

IpcHandle export_ipc(const void* pointer, std::size_t bytes) {
  const CudaDriver& driver = cuda_driver();
  require(bytes > 0, "cannot share 0 bytes at {}", pointer);
  std::optional<CurrentDevice> current;
  cuda_pointer::borrow_context(current);
  const CUdeviceptr at = cuda_pointer::address_of(pointer);
  const MemoryKind kind = cuda_pointer::kind_of(at);
  require(kind == MemoryKind::device, "CUDA IPC cannot share {}, which is {} memory: {}", pointer,
          to_string(kind), remedy(kind));
  const int home = cuda_pointer::home_of(at);
  require(home >= 0, "the driver does not say on which device {} is", pointer);

  IpcHandle handle = cuda_pointer::locate(pointer, bytes, DeviceId{home});
  const CurrentDevice owner(DeviceId{home});
  CUipcMemHandle raw{};
  check_cuda(driver.IpcGetMemHandle(&raw, handle.address), "cuIpcGetMemHandle");
  std::memcpy(handle.handle.data(), raw.reserved, handle.handle.size());
  return handle;
}

IpcMapping IpcMapping::open(const IpcHandle& handle, DeviceId for_device) {
  require_cuda_device(for_device);
  require(handle.bytes > 0 && handle.offset <= handle.allocation_bytes &&
              handle.bytes <= handle.allocation_bytes - handle.offset,
          "IPC handle: {} bytes at offset {} are not within an allocation of {} bytes", handle.bytes,
          handle.offset, handle.allocation_bytes);
  if (handle.process == os::process_id()) return {nullptr, own_memory(handle, for_device), handle.bytes};

  // A device that CUDA_VISIBLE_DEVICES hides may still be accessible; the driver then decides.
  if (const std::optional<DeviceId> home = find_device(handle.device)) vmm::require_peer(for_device, *home);
  auto use = std::make_shared<const Use>(handle, for_device);
  const CurrentDevice current(for_device);
  // Check the sizes in the peer's handle before they are used.
  if (const std::optional<cuda_pointer::Range> range = cuda_pointer::range_around(use->base())) {
    if (handle.allocation_bytes > range->begin + range->bytes - use->base()) {
      fail(ErrorCode::protocol, "IPC handle: it names an allocation of {} bytes, but the driver opened {}",
           handle.allocation_bytes, range->begin + range->bytes - use->base());
    }
  }
  auto* const data = to_pointer<std::byte>(use->base() + handle.offset);
  return {std::move(use), data, handle.bytes};
}

}  // namespace onehop
