// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU, made by the driver's virtual memory management: physical memory that a descriptor (or a
// fabric handle) carries to other processes, and that only the devices it was granted to can reach.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "onehop/types.h"

#include "driver/cuda_driver.h"
#include "os/unique_fd.h"

namespace onehop::vmm {

/// What to make.
struct Request {
  DeviceId device;
  /// A set of the driver's bits: every way in which the memory can travel.
  CUmemAllocationHandleType handles = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  bool gpu_direct_rdma = true;  ///< where the device can: network cards may then reach the memory as well
};

/// Sizes are rounded up to this.
[[nodiscard]] std::size_t granularity(const Request& request);
/// Error{invalid_argument} for 0 and for more than any machine has.
[[nodiscard]] std::size_t round_up(std::size_t bytes, std::size_t granularity);

/// Error{unsupported} naming both devices unless `device` can reach memory of `home`. Enables nothing:
/// mappings bring their own access.
void require_peer(DeviceId device, DeviceId home);
[[noreturn]] void fail_without_peer(DeviceId device, DeviceId home);

/// Physical memory, its own or a peer's: one reference to it. The memory lives while any process holds one.
class Physical {
 public:
  [[nodiscard]] static Physical create(const Request& request, std::size_t bytes);
  [[nodiscard]] static Physical import(void* shareable, CUmemAllocationHandleType type, DeviceId for_device);
  /// The memory that is mapped at `address`, whoever mapped it.
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

/// Addresses that nothing else gets.
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

/// Lets `device` read and write what is mapped at `at`. Again is fine. Thread-safe.
void grant_range(CUdeviceptr at, std::size_t bytes, DeviceId device, std::optional<DeviceId> home);

/// Fills memory of `device` with zeros from a stream of its own and waits. Error{timeout} when the device
/// does not get to it; then the memory must not be freed, since the device may still write to it.
void zero_range(CUdeviceptr at, std::size_t bytes, DeviceId device, Duration patience);

/// Memory of one GPU as this process reaches it. Going, it unmaps, frees the addresses and releases the
/// memory, in this order; it does not wait for work that still uses it.
class Memory {
 public:
  /// Reachable from request.device; not zeroed.
  [[nodiscard]] static Memory create(const Request& request, std::size_t bytes);
  /// Reachable from `for_device`. `bytes` as given to the peer's create.
  [[nodiscard]] static Memory import_fd(int fd, std::size_t bytes, DeviceId for_device);
  [[nodiscard]] static Memory import_fabric(const std::array<std::byte, 64>& handle, std::size_t bytes,
                                            DeviceId for_device);

  [[nodiscard]] std::byte* data() const;
  /// Rounded up.
  [[nodiscard]] std::size_t bytes() const { return range_.bytes(); }
  /// Whose memory it is; none when this process does not see that device.
  [[nodiscard]] std::optional<DeviceId> home() const { return home_; }

  [[nodiscard]] os::UniqueFd export_fd() const;
  [[nodiscard]] std::array<std::byte, 64> export_fabric() const;

  /// Lets `device` read and write here. Again is fine. Thread-safe.
  void grant(DeviceId device) const;
  /// Whether `device` may read and write here.
  [[nodiscard]] bool granted(DeviceId device) const;
  void zero(DeviceId device, Duration patience) const;  ///< see zero_range

 private:
  Memory(Physical physical, std::size_t bytes, std::optional<DeviceId> home);
  [[nodiscard]] static Memory import(void* shareable, CUmemAllocationHandleType type, std::size_t bytes,
                                     DeviceId for_device);

  // In the order in which they are made; they go in reverse.
  Physical physical_;
  Reservation range_;
  Mapping mapping_;
  std::optional<DeviceId> home_;
};

/// Zeroed memory. A device too busy to zero it within `patience` keeps it.
[[nodiscard]] Memory create_zeroed(const Request& request, std::size_t bytes, Duration patience);

}  // namespace onehop::vmm
