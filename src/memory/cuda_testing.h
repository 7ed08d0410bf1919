// SPDX-License-Identifier: Apache-2.0
// A CUDA driver for tests: memory of a few devices that are not there, backed by memfds, so that what is
// written through one mapping is read through another, also in another process. It counts what lives, notes
// what a driver would punish, and fails any chosen call. NVML knows of them that they are registered with a
// fabric.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "onehop/error.h"

#include "driver/cuda_driver.h"
#include "driver/nvml.h"
#include "os/unique_fd.h"

namespace onehop {

class FakeCuda {
 public:
  static constexpr std::size_t kGranularity = std::size_t{2} << 20;

  int devices = 2;
  bool peers = true;        ///< whether devices reach each other
  bool busy = false;        ///< streams never finish
  bool capturing = false;   ///< streams are captured in a graph
  bool fabric = false;      ///< whether fabric handles are permitted
  bool passable = true;     ///< whether descriptors can be imported
  bool ipc_capable = true;  ///< whether CUDA IPC can carry memory of cuMemAlloc
  unsigned char fabric_state = kNvmlFabricCompleted;
  std::map<int, int> attribute;  ///< answers other than 1

  FakeCuda();
  ~FakeCuda() { current_ = nullptr; }
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  /// The `n`th call from now that makes or asks for something fails; 0: none does.
  void fail_call(int n) {
    fail_at_ = n == 0 ? 0 : calls_ + n;
    failed_.clear();
  }
  /// The name of the call that failed since, or empty.
  [[nodiscard]] const std::string& failed() const { return failed_; }
  /// Memory that the driver is to know. Its addresses cannot be read or written.
  struct Memory {
    std::size_t bytes = kGranularity;
    int device = 0;
    CUmemorytype type = CU_MEMORYTYPE_DEVICE;
    bool managed = false;
    bool pool = false;
    bool vmm = false;
    bool exportable = true;  ///< as a descriptor, where it is of VMM
    bool ipc = true;
    unsigned long long id = 0;
    CUdeviceptr opened_from = 0;  ///< of a peer's memory, opened: the address it stands for
    int backing = -1;             ///< of cuMemAlloc: the memfd that is mapped at its address
    std::set<int> access{};       ///< devices that it was granted to, where it is of VMM
  };
  std::byte* add_memory(Memory memory) {
    const CUdeviceptr at = next_address_;
    next_address_ += memory.bytes + kGranularity;
    if (memory.id == 0) memory.id = ++last_id_;
    memory_[at] = memory;
    return reinterpret_cast<std::byte*>(at);
  }
  /// Memory at a place of one's own, also other memory where there was some before.
  void reuse_address(const std::byte* at, Memory memory) {
    if (memory.id == 0) memory.id = ++last_id_;
    memory_[reinterpret_cast<CUdeviceptr>(at)] = memory;
  }
  void remove_memory(const std::byte* at) { memory_.erase(reinterpret_cast<CUdeviceptr>(at)); }
  /// How many allocations of peers are open, and how often one was opened.
  [[nodiscard]] std::size_t opened() const {
    std::size_t count = 0;
    for (const auto& [at, each] : memory_) count += each.opened_from != 0 ? 1 : 0;
    return count;
  }
  [[nodiscard]] int openings() const { return openings_; }
  /// Pairs (device, peer) of which the first was let into the second's memory.
  [[nodiscard]] const std::set<std::pair<int, int>>& enabled() const { return enabled_; }
  /// Which device is current on the calling thread; -1: none.
  [[nodiscard]] int current_device() const {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(context_)) - 1;
  }

  /// What lives: handles, address ranges, mappings, memory of cuMemAlloc, streams.
  [[nodiscard]] std::size_t living() const {
    return physical_.size() + ranges_.size() + mapped_.size() + allocated() +
           static_cast<std::size_t>(streams_);
  }
  /// Memory of cuMemAlloc that is not freed.
  [[nodiscard]] std::size_t allocated() const {
    std::size_t count = 0;
    for (const auto& [at, each] : memory_) count += each.backing >= 0 && each.opened_from == 0 ? 1 : 0;
    return count;
  }
  /// What was done in the wrong order.
  [[nodiscard]] const std::vector<std::string>& wrongs() const { return wrongs_; }
  /// The devices that may reach the mapping at `data`.
  [[nodiscard]] std::set<int> access(const void* data) const {
    const auto at = mapped_.find(reinterpret_cast<CUdeviceptr>(data));
    if (at != mapped_.end()) return at->second.access;
    const auto known = memory_.find(reinterpret_cast<CUdeviceptr>(data));
    return known == memory_.end() ? std::set<int>{} : known->second.access;
  }
  [[nodiscard]] const CUmemAllocationProp& last_request() const { return last_request_; }
  /// How often memory was made, and how often NVML was asked about the fabric.
  [[nodiscard]] int creations() const { return creations_; }
  [[nodiscard]] int fabric_queries() const { return fabric_queries_; }
  /// How often the driver was asked for attributes of a pointer together.
  [[nodiscard]] int pointer_queries() const { return pointer_queries_; }

 private:
  struct Physical {
    os::UniqueFd fd;
    ino_t number = 0;
  };
  struct Made {
    std::size_t bytes = 0;
    CUmemAllocationProp request{};
  };
  struct Mapped {
    std::size_t bytes = 0;
    std::set<int> access;
  };

  /// Where memory lies for other processes, in handles that are bytes.
  struct Foreign {
    ino_t number = 0;
    pid_t process = 0;
    int fd = -1;
    int device = 0;
    std::size_t bytes = 0;

    [[nodiscard]] os::UniqueFd open() const {
      const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(fd);
      os::UniqueFd opened(::open(path.c_str(), O_RDWR | O_CLOEXEC));
      return number_of(opened.get()) == number ? std::move(opened) : os::UniqueFd();
    }
  };
  /// Memory that a FakeCuda of another process has made.
  void adopt_foreign(int fd, CUmemAllocationHandleType type) {
    char name[64] = {};
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    if (::readlink(path.c_str(), name, sizeof name - 1) < 0 || std::strstr(name, "fake-gpu") == nullptr)
      return;
    struct stat info {};
    if (::fstat(fd, &info) != 0) return;
    Made made{.bytes = static_cast<std::size_t>(info.st_size)};
    made.request.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    made.request.requestedHandleTypes = type;
    made_.emplace(info.st_ino, made);
  }

  CUresult step(const char* name) {
    if (++calls_ != fail_at_) return CUDA_SUCCESS;
    failed_ = name;
    return CUDA_ERROR_UNKNOWN;
  }
  void wrong(std::string what) { wrongs_.push_back(std::move(what)); }
  static ino_t number_of(int fd) {
    struct stat info {};
    return ::fstat(fd, &info) == 0 ? info.st_ino : 0;
  }
  CUmemGenericAllocationHandle add(os::UniqueFd fd) {
    const ino_t number = number_of(fd.get());
    physical_[++last_handle_] = {.fd = std::move(fd), .number = number};
    return last_handle_;
  }
  static CUdeviceptr map_backing(int fd, std::size_t bytes) {
    return reinterpret_cast<CUdeviceptr>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  }
  void fill_devices();
  void fill_memory();
  void fill_ipc();
  void fill_nvml();
  /// The memory that `at` lies in.
  [[nodiscard]] std::map<CUdeviceptr, Memory>::iterator find(CUdeviceptr at) {
    auto found = memory_.upper_bound(at);
    if (found == memory_.begin()) return memory_.end();
    --found;
    return at - found->first < found->second.bytes ? found : memory_.end();
  }

  inline static FakeCuda* current_ = nullptr;

  CudaDriver table_;
  ScopedCudaDriver scope_{&table_};
  Nvml nvml_;
  ScopedNvml nvml_scope_{&nvml_};
  int calls_ = 0;
  int fail_at_ = 0;
  std::string failed_;
  std::vector<std::string> wrongs_;
  std::map<CUmemGenericAllocationHandle, Physical> physical_;
  std::map<ino_t, Made> made_;
  std::map<CUdeviceptr, std::size_t> ranges_;
  std::map<CUdeviceptr, Mapped> mapped_;
  CUmemGenericAllocationHandle last_handle_ = 0;
  CUmemAllocationProp last_request_{};
  int creations_ = 0;
  int fabric_queries_ = 0;
  int pointer_queries_ = 0;
  CUcontext context_ = nullptr;
  int streams_ = 0;
  CUdeviceptr next_address_ = CUdeviceptr{0x7f} << 40;
  unsigned long long last_id_ = 0;
  std::map<CUdeviceptr, Memory> memory_;
  std::set<std::pair<int, int>> enabled_;
  int openings_ = 0;
};

inline FakeCuda::FakeCuda() {
  current_ = this;
  fill_devices();
  fill_memory();
  fill_ipc();
  fill_nvml();
}

// Lambdas become the driver's functions; a call that may fail starts with a step.
#define ONEHOP_FAKE_STEP(name) \
  FakeCuda& self = *current_;  \
  if (self.step(name) != CUDA_SUCCESS) return CUDA_ERROR_UNKNOWN

inline void FakeCuda::fill_devices() {
  table_.GetErrorName = [](CUresult, const char** name) {
    *name = "CUDA_ERROR_FAKE";
    return CUDA_SUCCESS;
  };
  table_.GetErrorString = [](CUresult, const char** text) {
    *text = "made up";
    return CUDA_SUCCESS;
  };
  table_.DeviceGetCount = [](int* count) {
    *count = current_->devices;
    return CUDA_SUCCESS;
  };
  table_.DeviceGet = [](CUdevice* device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
  };
  table_.DeviceGetName = [](char* text, int length, CUdevice) {
    (void)std::snprintf(text, static_cast<std::size_t>(length), "made up");
    return CUDA_SUCCESS;
  };
  table_.DeviceGetUuid = [](CUuuid* uuid, CUdevice device) {
    std::memset(uuid->bytes, device + 1, sizeof uuid->bytes);
    return CUDA_SUCCESS;
  };
  table_.DeviceGetPCIBusId = [](char* text, int length, CUdevice device) {
    (void)std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
    return CUDA_SUCCESS;
  };
  table_.DeviceGetAttribute = [](int* value, CUdevice_attribute which, CUdevice) {
    ONEHOP_FAKE_STEP("cuDeviceGetAttribute");
    const auto known = self.attribute.find(which);
    *value = known == self.attribute.end() ? 1 : known->second;
    return CUDA_SUCCESS;
  };
  table_.DeviceCanAccessPeer = [](int* can, CUdevice, CUdevice) {
    ONEHOP_FAKE_STEP("cuDeviceCanAccessPeer");
    *can = self.peers ? 1 : 0;
    return CUDA_SUCCESS;
  };
  table_.DevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) {
    *context = reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device + 1));
    return CUDA_SUCCESS;
  };
  table_.CtxGetCurrent = [](CUcontext* context) {
    *context = current_->context_;
    return CUDA_SUCCESS;
  };
  table_.CtxSetCurrent = [](CUcontext context) {
    current_->context_ = context;
    return CUDA_SUCCESS;
  };
  table_.DevicePrimaryCtxGetState = [](CUdevice device, unsigned*, int* active) {
    ONEHOP_FAKE_STEP("cuDevicePrimaryCtxGetState");
    *active = device == 1 ? 1 : 0;
    return CUDA_SUCCESS;
  };
  table_.CtxEnablePeerAccess = [](CUcontext peer, unsigned) {
    ONEHOP_FAKE_STEP("cuCtxEnablePeerAccess");
    const auto other = static_cast<int>(reinterpret_cast<std::uintptr_t>(peer)) - 1;
    const bool first = self.enabled_.emplace(self.current_device(), other).second;
    return first ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  };
  table_.CtxDisablePeerAccess = [](CUcontext peer) {
    ONEHOP_FAKE_STEP("cuCtxDisablePeerAccess");
    const auto other = static_cast<int>(reinterpret_cast<std::uintptr_t>(peer)) - 1;
    const bool was = self.enabled_.erase({self.current_device(), other}) != 0;
    return was ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  };
  // What a group asks for once its memory is mapped everywhere, and before its kernels, which nobody could
  // fake.
  table_.MemHostAlloc = [](void**, std::size_t, unsigned) { return CUDA_ERROR_NOT_SUPPORTED; };
  table_.CtxSynchronize = [] { return CUDA_SUCCESS; };
  table_.StreamCreate = [](CUstream* stream, unsigned) {
    ONEHOP_FAKE_STEP("cuStreamCreate");
    ++self.streams_;
    *stream = reinterpret_cast<CUstream>(std::uintptr_t{1});
    return CUDA_SUCCESS;
  };
  table_.StreamDestroy = [](CUstream) {
    --current_->streams_;
    return CUDA_SUCCESS;
  };
  table_.StreamQuery = [](CUstream) {
    ONEHOP_FAKE_STEP("cuStreamQuery");
    return self.busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  };
}

inline void FakeCuda::fill_memory() {
  table_.MemGetAllocationGranularity = [](std::size_t* unit, const CUmemAllocationProp*,
                                          CUmemAllocationGranularity_flags) {
    ONEHOP_FAKE_STEP("cuMemGetAllocationGranularity");
    *unit = kGranularity;
    return CUDA_SUCCESS;
  };
  table_.MemCreate = [](CUmemGenericAllocationHandle* handle, std::size_t bytes,
                        const CUmemAllocationProp* wanted, unsigned long long) {
    ONEHOP_FAKE_STEP("cuMemCreate");
    self.last_request_ = *wanted;
    ++self.creations_;
    if ((wanted->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && !self.fabric)
      return CUDA_ERROR_NOT_PERMITTED;
    if (bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
    os::UniqueFd fd(::memfd_create("fake-gpu", 0));  // not close-on-exec: the driver does not promise it
    if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    const std::vector<unsigned char> garbage(bytes, 0xab);
    if (::pwrite(fd.get(), garbage.data(), bytes, 0) < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    self.made_[number_of(fd.get())] = {.bytes = bytes, .request = *wanted};
    *handle = self.add(std::move(fd));
    return CUDA_SUCCESS;
  };
  table_.MemRelease = [](CUmemGenericAllocationHandle handle) {
    if (current_->physical_.erase(handle) == 0) current_->wrong("released twice");
    return CUDA_SUCCESS;
  };
  table_.MemAddressReserve = [](CUdeviceptr* at, std::size_t bytes, std::size_t, CUdeviceptr,
                                unsigned long long) {
    ONEHOP_FAKE_STEP("cuMemAddressReserve");
    void* const data = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    *at = reinterpret_cast<CUdeviceptr>(data);
    self.ranges_[*at] = bytes;
    return CUDA_SUCCESS;
  };
  table_.MemAddressFree = [](CUdeviceptr at, std::size_t bytes) {
    if (current_->mapped_.count(at) != 0) current_->wrong("addresses freed while mapped");
    if (current_->ranges_.erase(at) == 0) current_->wrong("addresses freed twice");
    (void)::munmap(reinterpret_cast<void*>(at), bytes);
    return CUDA_SUCCESS;
  };
  table_.MemMap = [](CUdeviceptr at, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle handle,
                     unsigned long long) {
    ONEHOP_FAKE_STEP("cuMemMap");
    const auto memory = self.physical_.find(handle);
    if (memory == self.physical_.end() || self.ranges_[at] != bytes) return CUDA_ERROR_INVALID_VALUE;
    if (self.made_[memory->second.number].bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
    if (::mmap(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
               memory->second.fd.get(), 0) == MAP_FAILED)
      return CUDA_ERROR_OUT_OF_MEMORY;
    self.mapped_[at] = {.bytes = bytes, .access = {}};
    return CUDA_SUCCESS;
  };
  table_.MemUnmap = [](CUdeviceptr at, std::size_t bytes) {
    if (current_->mapped_.erase(at) == 0) current_->wrong("unmapped twice");
    (void)::mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                 0);
    return CUDA_SUCCESS;
  };
  table_.MemSetAccess = [](CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc* access,
                           std::size_t count) {
    ONEHOP_FAKE_STEP("cuMemSetAccess");
    const auto mapped = self.mapped_.find(at);
    const auto known = self.memory_.find(at);
    const bool foreign = known != self.memory_.end() && known->second.vmm && known->second.bytes == bytes;
    if (!foreign && (mapped == self.mapped_.end() || mapped->second.bytes != bytes))
      return CUDA_ERROR_INVALID_VALUE;
    std::set<int>& granted = foreign ? known->second.access : mapped->second.access;
    for (std::size_t i = 0; i < count; ++i) granted.insert(access[i].location.id);
    return CUDA_SUCCESS;
  };
  table_.MemGetAccess = [](unsigned long long* flags, const CUmemLocation* place, CUdeviceptr at) {
    ONEHOP_FAKE_STEP("cuMemGetAccess");
    const bool may = self.access(reinterpret_cast<void*>(at)).count(place->id) != 0;
    *flags = may ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  };
  table_.MemExportToShareableHandle = [](void* out, CUmemGenericAllocationHandle handle,
                                         CUmemAllocationHandleType type, unsigned long long) {
    ONEHOP_FAKE_STEP("cuMemExportToShareableHandle");
    const auto memory = self.physical_.find(handle);
    if (memory == self.physical_.end()) return CUDA_ERROR_INVALID_VALUE;
    if ((self.made_[memory->second.number].request.requestedHandleTypes & type) == 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
      const Foreign place{
          .number = memory->second.number, .process = ::getpid(), .fd = memory->second.fd.get()};
      std::memcpy(out, &place, sizeof place);
    } else {
      const int fd = ::dup(memory->second.fd.get());
      std::memcpy(out, &fd, sizeof fd);
    }
    return CUDA_SUCCESS;
  };
  table_.MemImportFromShareableHandle = [](CUmemGenericAllocationHandle* handle, void* shareable,
                                           CUmemAllocationHandleType type) {
    ONEHOP_FAKE_STEP("cuMemImportFromShareableHandle");
    int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(shareable));
    if (type != CU_MEM_HANDLE_TYPE_FABRIC && !self.passable) return CUDA_ERROR_OPERATING_SYSTEM;
    os::UniqueFd foreign;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
      Foreign place;
      std::memcpy(&place, shareable, sizeof place);
      fd = -1;
      for (const auto& [key, each] : self.physical_) {
        if (each.number == place.number) fd = each.fd.get();
      }
      if (fd < 0) {
        foreign = place.open();
        fd = foreign.get();
      }
    }
    self.adopt_foreign(fd, type);
    if (fd < 0 || self.made_.count(number_of(fd)) == 0) return CUDA_ERROR_INVALID_VALUE;
    *handle = self.add(os::UniqueFd(::dup(fd)));
    return CUDA_SUCCESS;
  };
  table_.MemGetAllocationPropertiesFromHandle = [](CUmemAllocationProp* found,
                                                   CUmemGenericAllocationHandle handle) {
    ONEHOP_FAKE_STEP("cuMemGetAllocationPropertiesFromHandle");
    *found = self.made_[self.physical_[handle].number].request;
    return CUDA_SUCCESS;
  };
  table_.MemsetD8Async = [](CUdeviceptr at, unsigned char value, std::size_t bytes, CUstream) {
    ONEHOP_FAKE_STEP("cuMemsetD8Async");
    if (self.access(reinterpret_cast<void*>(at)).count(self.current_device()) == 0)
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    std::memset(reinterpret_cast<void*>(at), value, bytes);
    return CUDA_SUCCESS;
  };
}

inline void FakeCuda::fill_ipc() {
  table_.PointerGetAttribute = [](void* out, CUpointer_attribute which, CUdeviceptr at) {
    ONEHOP_FAKE_STEP("cuPointerGetAttribute");
    if (self.context_ == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    const auto found = self.find(at);
    if (found == self.memory_.end()) return CUDA_ERROR_INVALID_VALUE;
    const Memory& memory = found->second;
    const auto answer = [&](auto value) {
      std::memcpy(out, &value, sizeof value);
      return CUDA_SUCCESS;
    };
    switch (which) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return answer(static_cast<unsigned>(memory.type));
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return answer(memory.managed ? 1U : 0U);
      case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return answer(static_cast<std::uintptr_t>(memory.pool ? 1 : 0));
      case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return answer(memory.ipc ? 1 : 0);
      case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return answer(memory.id);
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return answer(memory.device);
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  };
  table_.PointerGetAttributes = [](unsigned count, CUpointer_attribute* which, void** out, CUdeviceptr at) {
    ONEHOP_FAKE_STEP("cuPointerGetAttributes");
    ++self.pointer_queries_;
    const auto found = self.find(at);
    const bool known = found != self.memory_.end();
    for (unsigned i = 0; i < count; ++i) {
      const auto answer = [&](auto value) { std::memcpy(out[i], &value, sizeof value); };
      switch (which[i]) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
          answer(known ? static_cast<unsigned>(found->second.type) : 0U);
          break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
          answer(known ? found->second.device : -2);
          break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
          answer(known && found->second.managed ? 1U : 0U);
          break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
          answer(known ? found->first : CUdeviceptr{0});
          break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
          answer(known ? found->second.bytes : std::size_t{0});
          break;
        default:
          return CUDA_ERROR_INVALID_VALUE;
      }
    }
    return CUDA_SUCCESS;
  };
  table_.StreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    ONEHOP_FAKE_STEP("cuStreamIsCapturing");
    *status = self.capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  };
  table_.MemRetainAllocationHandle = [](CUmemGenericAllocationHandle* handle, void* at) {
    ONEHOP_FAKE_STEP("cuMemRetainAllocationHandle");
    const auto found = self.find(reinterpret_cast<CUdeviceptr>(at));
    if (found == self.memory_.end() || !found->second.vmm) return CUDA_ERROR_INVALID_VALUE;
    const Memory& memory = found->second;
    os::UniqueFd fd(::memfd_create("fake-gpu", 0));
    if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(memory.bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    Made made{.bytes = memory.bytes};
    made.request.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memory.device};
    if (memory.exportable) made.request.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    self.made_[number_of(fd.get())] = made;
    *handle = self.add(std::move(fd));
    return CUDA_SUCCESS;
  };
  table_.MemGetAddressRange = [](CUdeviceptr* begin, std::size_t* bytes, CUdeviceptr at) {
    ONEHOP_FAKE_STEP("cuMemGetAddressRange");
    const auto found = self.find(at);
    if (found == self.memory_.end()) return CUDA_ERROR_NOT_FOUND;
    *begin = found->first;
    *bytes = found->second.bytes;
    return CUDA_SUCCESS;
  };
  table_.MemAlloc = [](CUdeviceptr* at, std::size_t bytes) {
    ONEHOP_FAKE_STEP("cuMemAlloc");
    const int fd = ::memfd_create("fake-gpu", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *at = map_backing(fd, bytes);
    std::memset(reinterpret_cast<void*>(*at), 0xab, bytes);
    const int device = self.current_device();
    self.memory_[*at] = {.bytes = bytes,
                         .device = device,
                         .ipc = self.ipc_capable,
                         .id = ++self.last_id_,
                         .backing = fd,
                         .access = {device}};
    return CUDA_SUCCESS;
  };
  table_.MemFree = [](CUdeviceptr at) {
    const auto found = current_->memory_.find(at);
    if (found == current_->memory_.end() || found->second.backing < 0 || found->second.opened_from != 0) {
      current_->wrong("freed what was not allocated");
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (const auto& [other, each] : current_->memory_) {
      if (each.opened_from == at) current_->wrong("freed while a peer had it open");
    }
    (void)::munmap(reinterpret_cast<void*>(at), found->second.bytes);
    (void)::close(found->second.backing);
    current_->memory_.erase(found);
    return CUDA_SUCCESS;
  };
  table_.IpcGetMemHandle = [](CUipcMemHandle* handle, CUdeviceptr at) {
    ONEHOP_FAKE_STEP("cuIpcGetMemHandle");
    if (self.memory_.count(at) == 0) return CUDA_ERROR_INVALID_VALUE;
    *handle = {};
    std::memcpy(handle->reserved, &at, sizeof at);
    const Memory& memory = self.memory_[at];
    const Foreign place{.number = number_of(memory.backing),
                        .process = ::getpid(),
                        .fd = memory.backing,
                        .device = memory.device,
                        .bytes = memory.bytes};
    static_assert(sizeof at + sizeof place <= sizeof handle->reserved);
    std::memcpy(handle->reserved + sizeof at, &place, sizeof place);
    return CUDA_SUCCESS;
  };
  table_.IpcOpenMemHandle = [](CUdeviceptr* base, CUipcMemHandle handle, unsigned flags) {
    ONEHOP_FAKE_STEP("cuIpcOpenMemHandle");
    CUdeviceptr at = 0;
    std::memcpy(&at, handle.reserved, sizeof at);
    Foreign place;
    std::memcpy(&place, handle.reserved + sizeof at, sizeof place);
    if (place.process != ::getpid() && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
      const int fd = place.open().release();  // closed with the process
      if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
      *base = map_backing(fd, place.bytes);
      self.memory_[*base] = {.bytes = place.bytes,
                             .device = place.device,
                             .ipc = false,
                             .id = ++self.last_id_,
                             .opened_from = at,
                             .backing = fd};
      ++self.openings_;
      return CUDA_SUCCESS;
    }
    const auto found = self.memory_.find(at);
    if (found == self.memory_.end() || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
      return CUDA_ERROR_INVALID_VALUE;
    Memory copy = found->second;
    copy.ipc = false;
    copy.id = 0;
    copy.opened_from = at;
    if (copy.backing >= 0) {
      *base = map_backing(copy.backing, copy.bytes);
      copy.id = ++self.last_id_;
      self.memory_[*base] = copy;
    } else {
      *base = reinterpret_cast<CUdeviceptr>(self.add_memory(copy));
    }
    ++self.openings_;
    return CUDA_SUCCESS;
  };
  table_.IpcCloseMemHandle = [](CUdeviceptr base) {
    if (current_->memory_.count(base) == 0 || current_->memory_[base].opened_from == 0)
      current_->wrong("closed what was not open");
    if (current_->memory_[base].backing >= 0)
      (void)::munmap(reinterpret_cast<void*>(base), current_->memory_[base].bytes);
    current_->memory_.erase(base);
    return CUDA_SUCCESS;
  };
}

#undef ONEHOP_FAKE_STEP

inline void FakeCuda::fill_nvml() {
  nvml_.ErrorString = [](NvmlResult) { return "made up"; };
  nvml_.DeviceGetHandleByPciBusId_v2 = [](const char*, NvmlDevice* device) {
    *device = nullptr;
    return kNvmlSuccess;
  };
  nvml_.DeviceGetGpuFabricInfo = [](NvmlDevice, NvmlFabricInfo* info) {
    ++current_->fabric_queries_;
    *info = {};
    info->state = current_->fabric_state;
    return kNvmlSuccess;
  };
}

/// Fails every call that `action` makes, one after the other: each is an error of one line, or is done
/// without, and leaves what lived before and nothing else.
inline void fail_each_call(FakeCuda& cuda, const std::function<void()>& action) {
  const std::size_t before = cuda.living() + cuda.opened();
  int errors = 0;
  for (int call = 1; call < 100; ++call) {
    cuda.fail_call(call);
    try {
      action();
    } catch (const Error& error) {
      ++errors;
      EXPECT_THAT(error.message(), ::testing::HasSubstr("CUDA_ERROR_FAKE"));
      EXPECT_THAT(error.message(), ::testing::Not(::testing::HasSubstr("\n")));
    }
    const std::string failed = cuda.failed();
    cuda.fail_call(0);
    EXPECT_EQ(cuda.living() + cuda.opened(), before) << "after " << failed << " failed";
    EXPECT_THAT(cuda.wrongs(), ::testing::IsEmpty()) << "after " << failed << " failed";
    if (failed.empty()) break;
  }
  EXPECT_GT(errors, 3);
}

}  // namespace onehop
