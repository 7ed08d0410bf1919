#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "onehop/device_memory.h"
#include "onehop/peer_access.h"

#include "base/check.h"
#include "base/log.h"
#include "driver/device.h"
#include "memory/vmm.h"
#include "os/process_id.h"

namespace onehop {
namespace {

CUdeviceptr device_pointer(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

/// How the driver says that it has no answer about a pointer, as opposed to being broken.
bool no_answer(CUresult result) {
  return result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_CONTEXT ||
         result == CUDA_ERROR_NOT_FOUND || result == CUDA_ERROR_NOT_SUPPORTED;
}

/// An attribute of a pointer; `otherwise` when the driver does not know the pointer or the attribute.
template <class T>
T attribute(CUpointer_attribute which, CUdeviceptr pointer, T otherwise) {
  T value{};
  const CUresult result = cuda_driver().PointerGetAttribute(&value, which, pointer);
  if (no_answer(result)) return otherwise;
  check_cuda(result, "cuPointerGetAttribute");
  return value;
}

/// Some context for questions about pointers: on a thread that has none the driver may refuse them. Only one
/// that exists already, since making one takes hundreds of megabytes of a device this process may not use.
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

MemoryKind kind_of(CUdeviceptr pointer) {
  const auto type = attribute<CUmemorytype>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer, CUmemorytype{});
  if (type == CUmemorytype{}) return MemoryKind::host;
  if (attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer, 0) != 0) return MemoryKind::managed;
  if (type == CU_MEMORYTYPE_HOST) return MemoryKind::pinned_host;
  // Before VMM: pools are made of it.
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

/// What to do about memory that CUDA IPC cannot carry.
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

std::array<std::uint8_t, 16> uuid_of(DeviceId device) {
  CUuuid uuid{};
  check_cuda(cuda_driver().DeviceGetUuid(&uuid, cuda_device(device)), "cuDeviceGetUuid");
  std::array<std::uint8_t, 16> bytes{};
  std::memcpy(bytes.data(), uuid.bytes, bytes.size());
  return bytes;
}

/// The device with this UUID, if this process sees it.
std::optional<DeviceId> find_device(const std::array<std::uint8_t, 16>& uuid) {
  for (int i = 0; i < cuda_device_count(); ++i) {
    if (uuid_of(DeviceId{i}) == uuid) return DeviceId{i};
  }
  return std::nullopt;
}

struct Range {
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
};

std::optional<Range> range_around(CUdeviceptr pointer) {
  Range range;
  const CUresult result = cuda_driver().MemGetAddressRange(&range.begin, &range.bytes, pointer);
  if (no_answer(result)) return std::nullopt;
  check_cuda(result, "cuMemGetAddressRange");
  return range;
}

/// Which allocation of which process, and for which device it was opened.
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
  static auto& instance = *new Table;  // leaked: mappings may go while statics are destroyed
  return instance;
}

/// One use of an opened allocation.
class Use {
 public:
  Use(const IpcHandle& handle, DeviceId device)
      : key_(handle.process, handle.allocation, handle.handle, device.value) {
    Table& all = table();
    // Held while the driver opens and closes, so that no second opening comes in between.
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
      // A forked child, or a driver that is gone: there is nothing left to close.
      log::debug("closing another process's memory: {}", error.what());
    }
  }

  Key key_;
  CUdeviceptr base_ = 0;
};

/// Memory of this very process, which CUDA IPC refuses to open. Nothing of the handle is believed that the
/// driver does not confirm.
std::byte* own_memory(const IpcHandle& handle, DeviceId for_device) {
  std::optional<CurrentDevice> current;
  borrow_context(current);
  const int home = attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, handle.address, -1);
  // A range is asked for in the context that it belongs to: in another device's the driver does not know it.
  if (home >= 0) current.emplace(DeviceId{home});
  const std::optional<Range> range = range_around(handle.address);
  const auto id = attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, handle.address, 0);
  require(home >= 0 && range.has_value() && range->begin == handle.address &&
              range->bytes == handle.allocation_bytes && id == handle.allocation,
          "the {} bytes of this process's own memory that an IPC handle names are not allocated any more",
          handle.allocation_bytes);
  // The process's own record of it: whatever else enables access (or has) shares it, and its limit.
  if (!PeerAccess::of_process().can_access(for_device, DeviceId{home}))
    vmm::fail_without_peer(for_device, DeviceId{home});
  return to_pointer<std::byte>(handle.address + handle.offset);
}

}  // namespace

MemoryKind memory_kind(const void* pointer) {
  if (find_cuda_driver() == nullptr || pointer == nullptr) return MemoryKind::host;
  std::optional<CurrentDevice> current;
  borrow_context(current);
  return kind_of(device_pointer(pointer));
}

IpcHandle export_ipc(const void* pointer, std::size_t bytes) {
  const CudaDriver& driver = cuda_driver();
  require(bytes > 0, "cannot share 0 bytes at {}", pointer);
  std::optional<CurrentDevice> current;
  borrow_context(current);
  const CUdeviceptr at = device_pointer(pointer);
  const MemoryKind kind = kind_of(at);
  require(kind == MemoryKind::device, "CUDA IPC cannot share {}, which is {} memory: {}", pointer,
          to_string(kind), remedy(kind));
  const int home = attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at, -1);
  require(home >= 0, "the driver does not say on which device {} is", pointer);
  const CurrentDevice owner(DeviceId{home});

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
  handle.device = uuid_of(DeviceId{home});
  CUipcMemHandle raw{};
  check_cuda(driver.IpcGetMemHandle(&raw, range.begin), "cuIpcGetMemHandle");
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

  // A device hidden by CUDA_VISIBLE_DEVICES can be reached all the same; then the driver has the last word.
  if (const std::optional<DeviceId> home = find_device(handle.device)) vmm::require_peer(for_device, *home);
  auto use = std::make_shared<const Use>(handle, for_device);
  const CurrentDevice current(for_device);
  // What the peer says of its sizes is checked before anything relies on it.
  if (const std::optional<Range> range = range_around(use->base())) {
    if (handle.allocation_bytes > range->begin + range->bytes - use->base()) {
      fail(ErrorCode::protocol, "IPC handle: it names an allocation of {} bytes, but the driver opened {}",
           handle.allocation_bytes, range->begin + range->bytes - use->base());
    }
  }
  auto* const data = to_pointer<std::byte>(use->base() + handle.offset);
  return {std::move(use), data, handle.bytes};
}

}  // namespace onehop
