// SPDX-License-Identifier: Apache-2.0
// GPU memory of the driver's virtual memory management: physical memory that a descriptor or a fabric handle
// shares with other processes, and that only devices with a grant can access.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "onehop/types.h"

#include "driver/cuda_driver.h"
#include "os/unique_fd.h"

namespace onehop::vmm {

/// Properties of the memory to allocate.
struct Request {
  DeviceId device;
  /// The handle types that the memory must support: a set of the driver's bits.
  CUmemAllocationHandleType handles = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  bool gpu_direct_rdma = true;  ///< allow RDMA by network cards, if the device supports it
};

/// The unit to which sizes are rounded up.
[[nodiscard]] std::size_t granularity(const Request& request);
/// Rounds up. Throws Error{invalid_argument} for 0 and for more than any machine has (2^48 bytes).
[[nodiscard]] std::size_t round_up(std::size_t bytes, std::size_t granularity);

/// Throws Error{unsupported}, which names both devices, unless `device` can access memory of `home`. Enables
/// nothing: mappings have their own access rights.
void require_peer(DeviceId device, DeviceId home);
[[noreturn]] void fail_without_peer(DeviceId device, DeviceId home);

/// A reference to physical memory of this process or of a peer. The memory lives while any process holds a
/// reference.
class Physical {
 public:
  [[nodiscard]] static Physical create(const Request& request, std::size_t bytes);
  [[nodiscard]] static Physical import(void* shareable, CUmemAllocationHandleType type, DeviceId for_device);
  /// Returns a reference to the memory that is mapped at `address`, by any owner.
  [[nodiscard]] static Physical behind(const void* address);
  Physical(Physical&& other) noexcept
      : handle_(std::exchange(other.handle_, 0)), owned_(std::exchange(other.owned_, false)) {}
  Physical& operator=(Physical&&) = delete;
  ~Physical();

  [[nodiscard]] CUmemGenericAllocationHandle get() const { return handle_; }
  [[nodiscard]] CUmemAllocationProp allocation_properties() const;
  [[nodiscard]] os::UniqueFd export_fd() const;

 private:
  explicit Physical(CUmemGenericAllocationHandle handle) : handle_(handle), owned_(true) {}
  CUmemGenericAllocationHandle handle_ = 0;
  bool owned_ = false;
};

/// A reserved range of virtual addresses.
class Reservation {
 public:
  explicit Reservation(std::size_t bytes);
  Reservation(Reservation&& other) noexcept : at_(std::exchange(other.at_, 0)), bytes_(other.bytes_) {}
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation();

  [[nodiscard]] CUdeviceptr at() const { return at_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  CUdeviceptr at_ = 0;
  std::size_t bytes_;
};

/// Physical memory mapped at reserved addresses.
class Mapping {
 public:
  Mapping(const Reservation& where, const Physical& what);
  Mapping(Mapping&& other) noexcept : at_(std::exchange(other.at_, 0)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

 private:
  CUdeviceptr at_;
  std::size_t bytes_;
};

/// Grants `device` read-write access to the memory mapped at `at`. Idempotent. Thread-safe.
void grant_range(CUdeviceptr at, std::size_t bytes, DeviceId device, std::optional<DeviceId> home);

/// Fills memory of `device` with zeros on a private stream, and waits. Throws Error{timeout} if the device
/// does not complete in time. The memory must not be freed then, because the device may still write to it.
void zero_range(CUdeviceptr at, std::size_t bytes, DeviceId device, Duration patience);

/// Memory of one GPU, mapped into this process. The destructor unmaps it, frees the addresses and releases
/// the memory, in this order. It does not wait for work that still uses the memory.
class Memory {
 public:
  /// Allocates memory with access for request.device. Not zeroed.
  [[nodiscard]] static Memory create(const Request& request, std::size_t bytes);
  /// Maps a peer's memory for access from `for_device`. `bytes` is the size that the peer passed to create.
  [[nodiscard]] static Memory import_fd(int fd, std::size_t bytes, DeviceId for_device);
  [[nodiscard]] static Memory import_fabric(const std::array<std::byte, 64>& handle, std::size_t bytes,
                                            DeviceId for_device);

  [[nodiscard]] std::byte* data() const;
  /// The rounded size.
  [[nodiscard]] std::size_t bytes() const { return range_.bytes(); }
  /// The device that owns the memory; nullopt if it is not visible to this process.
  [[nodiscard]] std::optional<DeviceId> home() const { return home_; }

  [[nodiscard]] os::UniqueFd export_fd() const;
  [[nodiscard]] std::array<std::byte, 64> export_fabric() const;

  /// Grants `device` read-write access. Idempotent. Thread-safe.
  void grant(DeviceId device) const;
  /// Whether `device` has read-write access.
  [[nodiscard]] bool granted(DeviceId device) const;
  void zero(DeviceId device, Duration patience) const;  ///< see zero_range

 private:
  Memory(Physical physical, std::size_t bytes, std::optional<DeviceId> home);
  [[nodiscard]] static Memory import(void* shareable, CUmemAllocationHandleType type, std::size_t bytes,
                                     DeviceId for_device);

  // In order of creation; destroyed in reverse.
  Physical physical_;
  Reservation range_;
  Mapping mapping_;
  std::optional<DeviceId> home_;
};

/// Allocates zeroed memory. If the device does not zero it within `patience`, the memory is leaked.
[[nodiscard]] Memory create_zeroed(const Request& request, std::size_t bytes, Duration patience);

}  // namespace onehop::vmm
