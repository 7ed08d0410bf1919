// SPDX-License-Identifier: Apache-2.0
#include "memory/vmm.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/deadline.h"
#include "base/log.h"
#include "base/units.h"
#include "driver/device.h"

namespace onehop::vmm {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 48;

template <class... Args>
void check(CUresult result, fmt::format_string<Args...> what, Args&&... args) {
  if (result != CUDA_SUCCESS) fail_cuda(result, fmt::format(what, std::forward<Args>(args)...));
}

/// For destructors: logs a failed release, which is a leak.
void note(CUresult result, const char* what) noexcept {
  if (result == CUDA_SUCCESS) return;
  try {
    log::debug("{}: {}", what, cuda_error_text(result));
  } catch (const std::exception&) {
    // No memory for the message.
  }
}

/// Serializes changes of mappings. The driver's functions are documented as thread-safe, but driver 580
/// crashed in cuMemUnmap, twice in about forty runs of groups whose ranks are threads. There, each rank
/// grants its own device access to the memory of all, and all destroy their mappings at the same moment.
[[nodiscard]] std::unique_lock<std::mutex> turn() {
  static auto& mutex = *new std::mutex;  // leaked: mappings may be destroyed during static destruction
  return std::unique_lock(mutex);
}

CUmemLocation location(DeviceId device) {
  CUmemLocation where{};
  where.type = CU_MEM_LOCATION_TYPE_DEVICE;
  where.id = cuda_device(device);
  return where;
}

CUmemAllocationProp properties(const Request& request) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.requestedHandleTypes = request.handles;
  wanted.location = location(request.device);
  const bool rdma =
      request.gpu_direct_rdma &&
      cuda_attribute(request.device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0;
  wanted.allocFlags.gpuDirectRDMACapable = rdma ? 1 : 0;
  return wanted;
}

std::size_t granularity(const CUmemAllocationProp& of) {
  std::size_t unit = 0;
  check(cuda_driver().MemGetAllocationGranularity(&unit, &of, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "asking device {} for the granularity of its memory", of.location.id);
  return unit;
}

class Stream {
 public:
  Stream() {
    // Non-blocking, so that it does not synchronize with the caller's streams: one of them may hold a kernel
    // that waits for a peer.
    check_cuda(cuda_driver().StreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (const CudaDriver* const driver = find_cuda_driver())
      note(driver->StreamDestroy(stream_), "cuStreamDestroy");
  }
  [[nodiscard]] CUstream get() const { return stream_; }

 private:
  CUstream stream_ = nullptr;
};

/// Leaks the memory: it stays mapped until the process ends.
void keep(Memory memory) {
  static auto& mutex = *new std::mutex;
  static auto& kept = *new std::vector<Memory>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(memory));
}

}  // namespace

std::size_t granularity(const Request& request) {
  return granularity(properties(request));
}

std::size_t round_up(std::size_t bytes, std::size_t granularity) {
  require(bytes > 0 && bytes <= kMaxBytes, "cannot allocate {} bytes of device memory", bytes);
  return (bytes + granularity - 1) / granularity * granularity;
}

void require_peer(DeviceId device, DeviceId home) {
  if (device == home) return;
  int can = 0;
  check(cuda_driver().DeviceCanAccessPeer(&can, cuda_device(device), cuda_device(home)),
        "asking whether device {} can reach device {}", device.value, home.value);
  if (can == 0) fail_without_peer(device, home);
}

void fail_without_peer(DeviceId device, DeviceId home) {
  fail(ErrorCode::unsupported,
       "device {} cannot reach memory of device {}: the driver offers no peer access between them ('onehop "
       "topo' shows which pairs have it)",
       device.value, home.value);
}

// --- Physical, Reservation, Mapping ---

Physical Physical::create(const Request& request, std::size_t bytes) {
  const CUmemAllocationProp wanted = properties(request);
  CUmemGenericAllocationHandle handle = 0;
  const auto own_turn = turn();
  check(cuda_driver().MemCreate(&handle, bytes, &wanted, 0), "allocating {} of memory on device {}{}",
        format_size(bytes), request.device.value,
        (request.handles & CU_MEM_HANDLE_TYPE_FABRIC) != 0
            ? " with a fabric handle (ShareBy::posix_fd needs none)"
            : "");
  return Physical(handle);
}

Physical Physical::import(void* shareable, CUmemAllocationHandleType type, DeviceId for_device) {
  CUmemGenericAllocationHandle handle = 0;
  const auto own_turn = turn();
  check(cuda_driver().MemImportFromShareableHandle(&handle, shareable, type),
        "importing a peer's memory for device {} (is it a {} of device memory?)", for_device.value,
        type == CU_MEM_HANDLE_TYPE_FABRIC ? "fabric handle" : "descriptor");
  return Physical(handle);
}

Physical Physical::behind(const void* address) {
  CUmemGenericAllocationHandle handle = 0;
  const auto own_turn = turn();
  check(cuda_driver().MemRetainAllocationHandle(&handle, const_cast<void*>(address)),
        "asking for the memory that is mapped at {}", address);
  return Physical(handle);
}

CUmemAllocationProp Physical::allocation_properties() const {
  CUmemAllocationProp found{};
  check_cuda(cuda_driver().MemGetAllocationPropertiesFromHandle(&found, handle_),
             "cuMemGetAllocationPropertiesFromHandle");
  return found;
}

os::UniqueFd Physical::export_fd() const {
  int raw = -1;
  check(cuda_driver().MemExportToShareableHandle(&raw, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "exporting device memory as a descriptor");
  os::UniqueFd fd(raw);
  // The driver does not guarantee close-on-exec.
  const int flags = ::fcntl(fd.get(), F_GETFD);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFD, flags | FD_CLOEXEC) != 0) {
    fail_errno(errno, "closing the descriptor of device memory on exec");
  }
  return fd;
}

Physical::~Physical() {
  if (!owned_) return;
  const auto own_turn = turn();
  if (const CudaDriver* const driver = find_cuda_driver()) note(driver->MemRelease(handle_), "cuMemRelease");
}

Reservation::Reservation(std::size_t bytes) : bytes_(bytes) {
  const auto own_turn = turn();
  check(cuda_driver().MemAddressReserve(&at_, bytes, 0, 0, 0), "reserving {} of addresses",
        format_size(bytes));
}

Reservation::~Reservation() {
  if (at_ == 0) return;
  const auto own_turn = turn();
  if (const CudaDriver* const driver = find_cuda_driver())
    note(driver->MemAddressFree(at_, bytes_), "cuMemAddressFree");
}

Mapping::Mapping(const Reservation& where, const Physical& what) : at_(where.at()), bytes_(where.bytes()) {
  const auto own_turn = turn();
  check(cuda_driver().MemMap(at_, bytes_, 0, what.get(), 0),
        "mapping {} of device memory (is the memory of this size?)", format_size(bytes_));
}

Mapping::~Mapping() {
  if (at_ == 0) return;
  const auto own_turn = turn();
  if (const CudaDriver* const driver = find_cuda_driver()) note(driver->MemUnmap(at_, bytes_), "cuMemUnmap");
}

// --- Memory ---

Memory::Memory(Physical physical, std::size_t bytes, std::optional<DeviceId> home)
    : physical_(std::move(physical)), range_(bytes), mapping_(range_, physical_), home_(home) {}

Memory Memory::create(const Request& request, std::size_t bytes) {
  require_cuda_device(request.device);
  const DeviceId device = request.device;
  if (cuda_attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0) {
    fail(ErrorCode::unsupported, "device {} has no virtual memory management, which shared memory needs",
         device.value);
  }
  const CurrentDevice current(device);
  const std::size_t rounded = round_up(bytes, vmm::granularity(request));
  Memory memory(Physical::create(request, rounded), rounded, device);
  memory.grant(device);
  return memory;
}

Memory Memory::import(void* shareable, CUmemAllocationHandleType type, std::size_t bytes,
                      DeviceId for_device) {
  const CurrentDevice current(for_device);
  Physical physical = Physical::import(shareable, type, for_device);
  const CUmemAllocationProp found = physical.allocation_properties();
  if (found.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    fail(ErrorCode::protocol, "a peer's memory for device {} is not memory of a GPU (location type {})",
         for_device.value, static_cast<int>(found.location.type));
  }
  // CUDA_VISIBLE_DEVICES may hide the owner. It cannot be queried then, and the driver decides when access is
  // granted.
  const bool visible = found.location.id >= 0 && found.location.id < cuda_device_count();
  std::optional<DeviceId> home;
  if (visible) {
    home = DeviceId{found.location.id};
    require_peer(for_device, *home);
  }
  const std::size_t unit =
      visible ? granularity(found) : vmm::granularity({.device = for_device, .handles = type});
  Memory memory(std::move(physical), round_up(bytes, unit), home);
  memory.grant(for_device);
  return memory;
}

Memory Memory::import_fd(int fd, std::size_t bytes, DeviceId for_device) {
  require_cuda_device(for_device);
  require(fd >= 0, "importing a peer's memory for device {}: there is no descriptor", for_device.value);
  // A descriptor as a pointer is how the driver wants it. NOLINTNEXTLINE(performance-no-int-to-ptr)
  void* const shareable = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
  return import(shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, bytes, for_device);
}

Memory Memory::import_fabric(const std::array<std::byte, 64>& handle, std::size_t bytes,
                             DeviceId for_device) {
  require_cuda_device(for_device);
  CUmemFabricHandle shareable{};
  static_assert(sizeof shareable.data == sizeof handle);
  std::memcpy(shareable.data, handle.data(), sizeof shareable.data);
  return import(&shareable, CU_MEM_HANDLE_TYPE_FABRIC, bytes, for_device);
}

std::byte* Memory::data() const {
  return to_pointer<std::byte>(range_.at());
}

os::UniqueFd Memory::export_fd() const {
  return physical_.export_fd();
}

std::array<std::byte, 64> Memory::export_fabric() const {
  CUmemFabricHandle shareable{};
  check(cuda_driver().MemExportToShareableHandle(&shareable, physical_.get(), CU_MEM_HANDLE_TYPE_FABRIC, 0),
        "exporting {} of device memory as a fabric handle", format_size(bytes()));
  std::array<std::byte, 64> handle{};
  std::memcpy(handle.data(), shareable.data, handle.size());
  return handle;
}

void grant_range(CUdeviceptr at, std::size_t bytes, DeviceId device, std::optional<DeviceId> home) {
  require_cuda_device(device);
  if (home) require_peer(device, *home);
  const CurrentDevice current(device);
  CUmemAccessDesc access{};
  access.location = location(device);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const auto own_turn = turn();
  check(cuda_driver().MemSetAccess(at, bytes, &access, 1), "granting device {} access to {} of {}",
        device.value, format_size(bytes),
        home ? fmt::format("device {}'s memory", home->value) : "a hidden device's memory");
}

void Memory::grant(DeviceId device) const {
  grant_range(range_.at(), bytes(), device, home_);
}

bool Memory::granted(DeviceId device) const {
  const CUmemLocation where = location(device);
  unsigned long long flags = 0;
  check(cuda_driver().MemGetAccess(&flags, &where, range_.at()), "asking what access device {} has",
        device.value);
  return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

void Memory::zero(DeviceId device, Duration patience) const {
  zero_range(range_.at(), bytes(), device, patience);
}

void zero_range(CUdeviceptr at, std::size_t bytes, DeviceId device, Duration patience) {
  const CudaDriver& driver = cuda_driver();
  const CurrentDevice current(device);
  const Deadline deadline = Deadline::after(patience);
  const Stream stream;
  check(driver.MemsetD8Async(at, 0, bytes, stream.get()), "zeroing {} of device {}'s memory",
        format_size(bytes), device.value);
  for (;;) {
    const CUresult state = driver.StreamQuery(stream.get());
    if (state == CUDA_SUCCESS) return;
    if (state != CUDA_ERROR_NOT_READY) {
      check(state, "zeroing {} of device {}'s memory", format_size(bytes), device.value);
    }
    if (deadline.expired()) {
      fail(ErrorCode::timeout,
           "device {} did not zero {} of new memory within {} ms: it is busy with other work", device.value,
           format_size(bytes), patience.count());
    }
    std::this_thread::sleep_for(std::chrono::microseconds{20});
  }
}

Memory create_zeroed(const Request& request, std::size_t bytes, Duration patience) {
  Memory memory = Memory::create(request, bytes);
  try {
    memory.zero(request.device, patience);
  } catch (const Error& error) {
    // The operation is still queued on the device. Unmapping the memory would cause a fault that ends every
    // kernel there.
    if (error.code() == ErrorCode::timeout) keep(std::move(memory));
    throw;
  }
  return memory;
}

}  // namespace onehop::vmm
