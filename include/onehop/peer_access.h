// SPDX-License-Identifier: Apache-2.0
// Peer access between GPUs: queried once, cached, and enabled where it is available.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "onehop/error.h"
#include "onehop/export.h"
#include "onehop/types.h"

namespace onehop {

/// What the driver reports about one device's access to another's memory. Topology reports how the two are
/// linked.
struct PairAttributes {
  bool access = false;          ///< loads, stores and copies
  int performance_rank = -1;    ///< CUDA's P2P performance rank; lower is better; -1: unknown
  bool native_atomics = false;  ///< atomics on the peer's memory are atomic for both devices
  bool array_access = false;    ///< access to CUDA arrays (textures and surfaces)

  bool operator==(const PairAttributes&) const = default;
};

/// A cache over ordered pairs of devices. Access has a direction: `device` reads and writes memory that lies
/// on `peer`. Every function first checks both devices and throws Error{invalid_argument}, which names the
/// missing device and the device count. Throws Error{unsupported} if there is no GPU. Thread-safe.
class ONEHOP_API PeerAccess {
 public:
  /// The instance that the whole process shares, over all its devices. Prefer it: access is enabled per
  /// process, so a second instance would only repeat the queries.
  [[nodiscard]] static PeerAccess& of_process();

  /// Creates a separate cache over devices 0 to `device_count` - 1.
  explicit PeerAccess(int device_count);
  PeerAccess(const PeerAccess&) = delete;
  PeerAccess& operator=(const PeerAccess&) = delete;

  /// Returns whether `device` can access memory on `peer`, and if so enables the access. It is enabled
  /// between the primary contexts, for all existing and future allocations of cudaMalloc; mappings and memory
  /// pools have grants of their own. Always true for a device and itself. Queries the driver once per pair. A
  /// positive answer does not prove that data arrives: see peer_check.h.
  ///
  /// Throws Error{out_of_resources} if `device` has already enabled as many peers as CUDA allows (8); the
  /// next call queries the pair again.
  [[nodiscard]] bool can_access(DeviceId device, DeviceId peer);

  /// Disables the access that can_access enabled: `device` can no longer access cudaMalloc memory on `peer`,
  /// and may enable another peer instead. A later can_access enables it again. Does nothing if this object
  /// has not enabled it. First wait for work that uses the access; groups whose ranks are threads, and
  /// IpcMappings of this process's own memory, use it as well. Mappings and pools keep their own grants.
  ///
  /// Throws Error{invalid_argument} for a device and itself, and Error{unsupported} if the driver lacks the
  /// function.
  void disable(DeviceId device, DeviceId peer);

  /// Grants `peer` read-write access to memory that cudaMallocAsync allocates on `owner` from the current
  /// pool of that device, including existing allocations. Throws Error{unsupported} if `peer` cannot access
  /// `owner`.
  void grant_pool_access(DeviceId owner, DeviceId peer);
  /// Grants `peer` read-write access to the memory of `pool`, a cudaMemPool_t (CUmemoryPool).
  void grant_pool_access(void* pool, DeviceId peer);

  /// Queries the driver on every call and enables nothing. For a device and itself: all access, performance
  /// rank 0.
  [[nodiscard]] PairAttributes pair_attributes(DeviceId device, DeviceId peer) const;

  /// Clears the cache and starts over with devices 0 to `device_count` - 1. Required after cudaDeviceReset,
  /// which disables peer access. Also clears, for the whole process, the cached results of which handle types
  /// work: a fabric manager or IMEX may have been started since.
  void reset(int device_count);

  [[nodiscard]] int device_count() const;

 private:
  enum class State : std::uint8_t { unknown, no, possible, enabled };

  PeerAccess() : counts_devices_(true) {}  // of_process(): counts the devices on first use

  void start_over(int device_count);
  // With mutex_ held.
  void check_pair(DeviceId device, DeviceId peer) const;
  [[nodiscard]] int count_devices() const;
  [[nodiscard]] State& known(DeviceId device, DeviceId peer);
  [[nodiscard]] bool is_possible(DeviceId device, DeviceId peer);
  void enable(DeviceId device, DeviceId peer);

  mutable std::mutex mutex_;
  const bool counts_devices_ = false;
  mutable int device_count_ = -1;      // -1: not counted yet
  mutable std::uint64_t epoch_ = 0;    // driver epoch that the cached state belongs to
  mutable std::vector<State> states_;  // devices x devices, row major; empty: nothing cached
};

}  // namespace onehop
