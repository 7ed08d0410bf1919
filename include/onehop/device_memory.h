// SPDX-License-Identifier: Apache-2.0
// GPU memory that other processes can map: memory allocated for sharing (DeviceMemory), and ordinary
// cudaMalloc memory (CUDA IPC).
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
  ShareBy share_by = ShareBy::automatic;  ///< not ShareBy::ipc: see export_ipc for cudaMalloc memory
  bool gpu_direct_rdma = true;            ///< also allow RDMA by network cards, if the device supports it
};

/// Physical memory of one GPU, mapped into this process with CUDA virtual memory management. Only devices
/// with a grant can access it: the device it was created on or imported for, and those passed to `grant`. An
/// access by another device faults.
///
/// Copies share the mapping; destroying the last copy unmaps the memory. The physical memory lives as long as
/// any process maps it or holds a descriptor of it. Unlike cudaFree, the destructor does not wait for kernels
/// that still use the memory: wait for them first.
///
/// Thread-safe. Every call may throw Error{unsupported} if there is no usable GPU or the driver does not
/// support the operation, and Error{out_of_resources} if memory is short.
class ONEHOP_API DeviceMemory {
 public:
  /// Allocates at least `bytes` bytes of zeroed memory on `device`.
  [[nodiscard]] static DeviceMemory create(DeviceId device, std::size_t bytes,
                                           DeviceMemoryOptions options = {});
  /// Maps memory that another process exported, for access from `for_device`. `bytes` is the size that its
  /// owner passed to `create`. The caller keeps `fd` and may close it at once. Throws Error{unsupported},
  /// which names both devices, if there is no peer access between them.
  [[nodiscard]] static DeviceMemory import_fd(int fd, std::size_t bytes, DeviceId for_device);
  [[nodiscard]] static DeviceMemory import_fabric(const FabricHandle& handle, std::size_t bytes,
                                                  DeviceId for_device);

  /// The requested size. The mapping is rounded up to the device's granularity (2 MiB).
  [[nodiscard]] std::size_t bytes() const;
  /// The address for kernels and copies, the same for all devices of this process. The CPU cannot access it.
  [[nodiscard]] std::byte* data() const;
  /// The device that the memory was created on or imported for.
  [[nodiscard]] DeviceId device() const;

  /// Returns a new descriptor (close-on-exec) that the caller owns. Throws Error{invalid_argument} for memory
  /// created with ShareBy::fabric or imported by a fabric handle.
  [[nodiscard]] int export_fd() const;
  /// Returns the fabric handle. Throws Error{invalid_argument} for memory created with ShareBy::posix_fd,
  /// created with ShareBy::automatic where fabric handles do not work, or imported by a descriptor.
  [[nodiscard]] FabricHandle export_fabric() const;

  /// Grants `device` read-write access to this memory. Idempotent.
  void grant(DeviceId device) const;
  /// Whether `device` has access, according to the driver.
  [[nodiscard]] bool granted(DeviceId device) const;

  class State;

 private:
  explicit DeviceMemory(std::shared_ptr<const State> state);
  [[nodiscard]] const State& state() const;
  std::shared_ptr<const State> state_;
};

/// The kind of memory that a pointer refers to, which decides how it can be shared. See memory_kind.
enum class MemoryKind : std::uint8_t {
  host,         ///< malloc, mmap, stack: unknown to CUDA
  pinned_host,  ///< cudaMallocHost, cudaHostRegister
  managed,      ///< cudaMallocManaged
  device,       ///< cudaMalloc: CUDA IPC can share it
  vmm,          ///< cuMemCreate: DeviceMemory, PyTorch's expandable segments, NCCL's own memory
  pool,         ///< cudaMallocAsync, cudaMallocFromPoolAsync
  other,  ///< GPU memory that cannot be shared: mapped from another process, or on a system without CUDA IPC
};

[[nodiscard]] ONEHOP_API std::string_view to_string(MemoryKind kind);

/// Asks the driver which kind of memory `pointer` refers to. Without a driver all memory is `host`.
/// Thread-safe.
[[nodiscard]] ONEHOP_API MemoryKind memory_kind(const void* pointer);

/// Plain data with which another process maps cudaMalloc memory. Returned by export_ipc.
struct IpcHandle {
  std::array<std::uint8_t, 16> process{};  ///< random identity of the owning process
  std::uint64_t allocation = 0;            ///< the driver's id of the allocation, unique in that process
  std::uint64_t address = 0;               ///< address of the allocation in the owning process
  std::uint64_t allocation_bytes = 0;
  std::uint64_t offset = 0;  ///< offset of the shared bytes in the allocation
  std::uint64_t bytes = 0;
  std::array<std::uint8_t, 16> device{};  ///< UUID of the GPU
  std::array<std::uint8_t, 64> handle{};  ///< the driver's handle of the allocation

  /// Encodes the fields in the format of docs/wire-formats.md, for Group::all_gather or any other channel.
  [[nodiscard]] ONEHOP_API std::string to_bytes() const;
  /// Decodes what `to_bytes` wrote. Throws Error{protocol} if `bytes` is not such a handle or its range
  /// exceeds its allocation.
  [[nodiscard]] ONEHOP_API static IpcHandle from_bytes(std::string_view bytes);

  bool operator==(const IpcHandle&) const = default;
};

/// Exports `bytes` bytes of cudaMalloc memory. `pointer` may lie inside an allocation. The memory must stay
/// allocated while peers map it. For memory that CUDA IPC cannot share, throws Error{invalid_argument}, which
/// names the kind of memory and an alternative. Thread-safe.
///
/// CUDA maps whole allocations into peers, and small allocations share blocks of 2 MiB. Peers can therefore
/// access neighboring data in the same block.
[[nodiscard]] ONEHOP_API IpcHandle export_ipc(const void* pointer, std::size_t bytes);

/// A peer's memory, mapped into this process. Each allocation is opened once per device, regardless of the
/// number of handles and copies that refer to it. It is closed when the last of them is destroyed: wait for
/// kernels that use it first. Opening a handle exported by this process maps nothing: it returns the original
/// address and enables peer access. Thread-safe.
class ONEHOP_API IpcMapping {
 public:
  /// Maps the memory for access from `for_device`. Throws Error{unsupported}, which names both devices, if
  /// there is no peer access between them, and Error{invalid_argument} if the memory has been freed.
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
