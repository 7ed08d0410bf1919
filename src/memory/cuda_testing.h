// SPDX-License-Identifier: Apache-2.0
// A fake CUDA driver for tests. Memory of a few fake devices is backed by memfds, so that data written
// through one mapping is visible through another, also in another process. The fake counts live objects,
// records misuse that a real driver would punish, and can fail any call. Its NVML reports the devices as
// registered with a fabric.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "onehop/device_memory.h"

#include "driver/cuda_driver.h"
#include "driver/nvml.h"
#include "os/unique_fd.h"

namespace onehop {

class FakeCuda {
 public:
  static constexpr std::size_t kGranularity = std::size_t{2} << 20;

  int devices = 2;
  bool peers = true;        ///< whether devices can access each other
  bool busy = false;        ///< streams never finish
  bool capturing = false;   ///< streams are captured in a graph
  bool fabric = false;      ///< whether fabric handles are permitted
  bool passable = true;     ///< whether descriptors can be imported
  bool ipc_capable = true;  ///< whether CUDA IPC can share cuMemAlloc memory
  unsigned char fabric_state = kNvmlFabricCompleted;
  std::map<int, int> attribute;  ///< attribute values other than 1

  FakeCuda();
  ~FakeCuda() { current_ = nullptr; }
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  /// Makes the `n`th call from now that creates or queries something fail; 0: none.
  void fail_call(int n) {
    fail_at_ = n == 0 ? 0 : calls_ + n;
    failed_.clear();
  }
  /// The name of the call that has failed since then, or empty.
  [[nodiscard]] const std::string& failed() const { return failed_; }
  /// Memory that the fake driver knows. Its addresses cannot be accessed.
  struct Memory {
    std::size_t bytes = kGranularity;
    int device = 0;
    CUmemorytype type = CU_MEMORYTYPE_DEVICE;
    bool managed = false;
    bool pool = false;
    bool vmm = false;
    bool exportable = true;  ///< VMM memory: can be exported as a descriptor
    bool ipc = true;
    unsigned long long id = 0;
    CUdeviceptr opened_from = 0;  ///< opened memory of a peer: the peer's address
    int backing = -1;             ///< cuMemAlloc memory: the memfd that is mapped at its address
    std::set<int> access{};       ///< VMM memory: devices with access
  };
  std::byte* add_memory(Memory memory) {
    const CUdeviceptr at = next_address_;
    next_address_ += memory.bytes + kGranularity;
    if (memory.id == 0) memory.id = ++last_id_;
    memory_[at] = memory;
    return reinterpret_cast<std::byte*>(at);
  }
  /// Adds memory at a given address, which may replace previous memory there.
  void reuse_address(const std::byte* at, Memory memory) {
    if (memory.id == 0) memory.id = ++last_id_;
    memory_[reinterpret_cast<CUdeviceptr>(at)] = memory;
  }
  void remove_memory(const std::byte* at) { memory_.erase(reinterpret_cast<CUdeviceptr>(at)); }
  /// The number of open allocations of peers; openings() counts all calls that opened one.
  [[nodiscard]] std::size_t opened() const {
    std::size_t count = 0;
    for (const auto& [at, each] : memory_) count += each.opened_from != 0 ? 1 : 0;
    return count;
  }
  [[nodiscard]] int openings() const { return openings_; }
  /// Pairs (device, peer) for which the device has been given access to the peer's memory.
  [[nodiscard]] const std::set<std::pair<int, int>>& enabled() const { return enabled_; }
  /// The device whose context is current; -1: none.
  [[nodiscard]] int current_device() const {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(context_)) - 1;
  }

  /// Number of live objects: handles, address ranges, mappings, cuMemAlloc memory, streams.
  [[nodiscard]] std::size_t living() const {
    return physical_.size() + ranges_.size() + mapped_.size() + allocated() +
           static_cast<std::size_t>(streams_);
  }
  /// Number of live allocations of cuMemAlloc.
  [[nodiscard]] std::size_t allocated() const {
    std::size_t count = 0;
    for (const auto& [at, each] : memory_) count += each.backing >= 0 && each.opened_from == 0 ? 1 : 0;
    return count;
  }
  /// Operations that were made in a wrong order.
  [[nodiscard]] const std::vector<std::string>& wrongs() const { return wrongs_; }
  /// The devices with access to the mapping at `data`.
  [[nodiscard]] std::set<int> access(const void* data) const {
    const auto at = mapped_.find(reinterpret_cast<CUdeviceptr>(data));
    if (at != mapped_.end()) return at->second.access;
    const auto known = memory_.find(reinterpret_cast<CUdeviceptr>(data));
    return known == memory_.end() ? std::set<int>{} : known->second.access;
  }
  [[nodiscard]] const CUmemAllocationProp& last_request() const { return last_request_; }
  /// Number of allocations, and number of NVML queries about the fabric.
  [[nodiscard]] int creations() const { return creations_; }
  [[nodiscard]] int fabric_queries() const { return fabric_queries_; }
  /// Number of cuPointerGetAttributes calls.
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

  /// The location of memory in handles that consist of bytes, for other processes.
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
  /// Registers memory that a FakeCuda of another process created.
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
  void fill_pointers();
  void fill_ipc();
  void fill_nvml();
  /// Finds the memory that contains `at`.
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

// For the files that fill the tables: lambdas become the driver's functions. A call that may fail begins with
// a step.
#define ONEHOP_FAKE_STEP(name) \
  FakeCuda& self = *current_;  \
  if (self.step(name) != CUDA_SUCCESS) return CUDA_ERROR_UNKNOWN

/// Returns the handle as if another process had created it.
[[nodiscard]] inline IpcHandle from_elsewhere(IpcHandle handle) {
  handle.process[0] ^= 1;
  return handle;
}

/// Makes each driver call of `action` fail in turn. Expects that each failure either becomes a one-line error
/// or is handled without one, and that only the previously live objects remain.
void fail_each_call(FakeCuda& cuda, const std::function<void()>& action);

}  // namespace onehop
