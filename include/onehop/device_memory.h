// SPDX-License-Identifier: Apache-2.0
// Memory of GPUs that other processes can map: memory made for it (DeviceMemory), and ordinary memory of
// cudaMalloc (CUDA IPC).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "onehop/error.h"
#include "onehop/export.h"
#include "onehop/types.h"

namespace onehop {

/// A fabric handle as plain bytes.
using FabricHandle = std::array<std::byte, 64>;

struct DeviceMemoryOptions {
  ShareBy share_by = ShareBy::automatic;  ///< not ShareBy::ipc: see export_ipc for memory of cudaMalloc
  bool gpu_direct_rdma = true;            ///< network cards may reach it too, where the device can
};

/// Physical memory of one GPU, mapped into this process (the driver's virtual memory management). Only
/// devices it was granted to can reach it: the one it was made on or imported for, and those given to
/// `grant`. Others that touch it fault.
///
/// Copies share the mapping; the last one to go unmaps it. The memory itself lives while any process maps it
/// or holds a descriptor of it. Unlike cudaFree, going does not wait for kernels that still use the memory:
/// wait for them first.
///
/// Thread-safe. Every call may throw Error{unsupported} where there is no usable GPU or the driver does not
/// permit it, and Error{out_of_resources} when memory is short.
class ONEHOP_API DeviceMemory {
 public:
  /// Zeroed memory of at least `bytes` on `device`.
  [[nodiscard]] static DeviceMemory create(DeviceId device, std::size_t bytes,
                                           DeviceMemoryOptions options = {});
  /// Memory that another process exported, reachable from `for_device`. `bytes` is what its owner gave to
  /// `create`. The caller keeps `fd` and may close it at once. Error{unsupported} names both devices when
  /// there is no peer access between them.
  [[nodiscard]] static DeviceMemory import_fd(int fd, std::size_t bytes, DeviceId for_device);
  [[nodiscard]] static DeviceMemory import_fabric(const FabricHandle& handle, std::size_t bytes,
                                                  DeviceId for_device);

  /// As asked for; what is mapped is rounded up to the device's granularity (2 MiB).
  [[nodiscard]] std::size_t bytes() const;
  /// For kernels and copies; the CPU cannot read it. One address for all devices of this process.
  [[nodiscard]] std::byte* data() const;
  /// The device it was made on or imported for.
  [[nodiscard]] DeviceId device() const;

  /// A new descriptor (close-on-exec) that the caller owns. Error{invalid_argument} for memory made with
  /// ShareBy::fabric or imported by a fabric handle.
  [[nodiscard]] int export_fd() const;
  /// Error{invalid_argument} for memory made with ShareBy::posix_fd, or with ShareBy::automatic where fabric
  /// handles do not work, or imported by a descriptor.
  [[nodiscard]] FabricHandle export_fabric() const;

  /// Lets `device` read and write this memory. Granting again is fine.
  void grant(DeviceId device) const;
  /// Whether `device` can, as the driver answers.
  [[nodiscard]] bool granted(DeviceId device) const;

  class State;

 private:
  explicit DeviceMemory(std::shared_ptr<const State> state);
  [[nodiscard]] const State& state() const;
  std::shared_ptr<const State> state_;
};

/// What a pointer points to, as far as sharing is concerned. See memory_kind.
enum class MemoryKind : std::uint8_t {
  host,         ///< malloc, mmap, stack: CUDA does not know it
  pinned_host,  ///< cudaMallocHost, cudaHostRegister
  managed,      ///< cudaMallocManaged
  device,       ///< cudaMalloc: what CUDA IPC carries
  vmm,          ///< cuMemCreate: DeviceMemory, PyTorch's expandable segments, NCCL's own memory
  pool,         ///< cudaMallocAsync, cudaMallocFromPoolAsync
  other,        ///< a GPU's, but not for sharing: another process's memory, or a system without CUDA IPC
};

[[nodiscard]] ONEHOP_API std::string_view to_string(MemoryKind kind);

/// Asks the driver what `pointer` points to. Without a driver everything is `host`. Thread-safe.
[[nodiscard]] ONEHOP_API MemoryKind memory_kind(const void* pointer);

/// What another process needs to map ordinary device memory: plain data. Made by export_ipc.
struct IpcHandle {
  std::array<std::uint8_t, 16> process{};  ///< random identity of the process whose memory it is
  std::uint64_t allocation = 0;            ///< the driver's id of the allocation, unique in that process
  std::uint64_t address = 0;               ///< of the allocation, in that process
  std::uint64_t allocation_bytes = 0;
  std::uint64_t offset = 0;  ///< of the shared bytes in the allocation
  std::uint64_t bytes = 0;
  std::array<std::uint8_t, 16> device{};  ///< UUID of the GPU
  std::array<std::uint8_t, 64> handle{};  ///< the driver's handle of the allocation

  /// The fields in the format of docs/wire-formats.md, to travel through Group::all_gather or any channel.
  [[nodiscard]] ONEHOP_API std::string to_bytes() const;
  /// Error{protocol} unless `bytes` is such a handle and its range lies within its allocation.
  [[nodiscard]] ONEHOP_API static IpcHandle from_bytes(std::string_view bytes);

  bool operator==(const IpcHandle&) const = default;
};

/// Shares `bytes` bytes of memory of cudaMalloc, which may start inside an allocation. The memory must stay
/// allocated while peers map it. Error{invalid_argument} for memory that CUDA IPC cannot carry, saying what
/// it is and what to use instead. Thread-safe.
///
/// CUDA maps whole allocations into peers, and small ones share blocks of 2 MiB: peers can then reach what
/// lies beside.
[[nodiscard]] ONEHOP_API IpcHandle export_ipc(const void* pointer, std::size_t bytes);

/// A peer's memory, mapped into this process. The allocation is opened once per device however many handles
/// and copies lead to it, and closed when the last of them goes; wait for kernels that use it first. A handle
/// of this process itself gives the memory as it is, with peer access. Thread-safe.
class ONEHOP_API IpcMapping {
 public:
  /// Reachable from `for_device`. Error{unsupported} names both devices when there is no peer access between
  /// them; Error{invalid_argument} when the memory is gone.
  [[nodiscard]] static IpcMapping open(const IpcHandle& handle, DeviceId for_device);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  IpcMapping(std::shared_ptr<const void> allocation, std::byte* data, std::size_t bytes)
      : allocation_(std::move(allocation)), data_(data), bytes_(bytes) {}
  std::shared_ptr<const void> allocation_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace onehop
