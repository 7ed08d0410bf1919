// SPDX-License-Identifier: Apache-2.0
// Which GPU may reach which GPU's memory: asked once, remembered, and access enabled where it may be had.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "onehop/error.h"
#include "onehop/export.h"
#include "onehop/types.h"

namespace onehop {

/// What the driver says about one device's access to another's memory. How the two are linked is Topology's
/// to tell.
struct PairAttributes {
  bool access = false;          ///< loads, stores and copies
  int performance_rank = -1;    ///< CUDA's own order of links; lower is better
  bool native_atomics = false;  ///< atomics on the peer's memory are atomic for both devices
  bool array_access = false;    ///< CUDA arrays (textures and surfaces) too

  bool operator==(const PairAttributes&) const = default;
};

/// A cache over ordered pairs of devices. Access has a direction: `device` reads and writes memory that lies
/// on `peer`. Every function checks both devices first (Error{invalid_argument} names the one that does not
/// exist and the count) and fails with Error{unsupported} where there is no GPU. Thread-safe.
class ONEHOP_API PeerAccess {
 public:
  /// The one that the whole process shares, over all its devices: what access is enabled is a property of
  /// the process, so asking elsewhere again would only repeat work.
  [[nodiscard]] static PeerAccess& of_process();

  /// Over devices 0 to `device_count` - 1.
  explicit PeerAccess(int device_count);
  PeerAccess(const PeerAccess&) = delete;
  PeerAccess& operator=(const PeerAccess&) = delete;

  /// Whether `device` may use memory on `peer`, which after a yes it can: access is enabled between the
  /// primary contexts, for all memory there that was allocated or will be (cudaMalloc; mappings and pools
  /// have their own grants). Always yes for a device and itself. Asks the driver once per pair.
  /// Error{out_of_resources} when `device` has enabled as many peers as CUDA lets it (8); the pair is asked
  /// again next time. That the driver says yes is no proof that data arrives: see peer_check.h.
  [[nodiscard]] bool can_access(DeviceId device, DeviceId peer);

  /// Takes back what can_access enabled: `device` cannot use memory of cudaMalloc on `peer` any more, and may
  /// enable another peer instead. A later can_access enables it again. Nothing happens where this object has
  /// not seen it enabled. Wait for work that uses it first; groups whose ranks are threads and IpcMappings of
  /// this process's own memory use it as well. Mappings and pools keep their own grants.
  /// Error{invalid_argument} for a device and itself, Error{unsupported} where the driver lacks the call.
  void disable(DeviceId device, DeviceId peer);

  /// Lets `peer` use what cudaMallocAsync gives out on `owner`, from the pool that is current there.
  /// Memory handed out before is included. Error{unsupported} when `peer` cannot reach `owner`.
  void grant_pool_access(DeviceId owner, DeviceId peer);
  /// The same for one pool, a cudaMemPool_t (CUmemoryPool).
  void grant_pool_access(void* pool, DeviceId peer);

  /// Asks the driver every time and enables nothing. A device and itself: everything, rank 0.
  [[nodiscard]] PairAttributes pair_attributes(DeviceId device, DeviceId peer) const;

  /// Forgets everything and starts over with devices 0 to `device_count` - 1. Needed after cudaDeviceReset,
  /// which takes back the access that was enabled. Also forgets, for the whole process, whether memory can be
  /// shared by descriptors or fabric handles: a fabric manager or IMEX may have been started since.
  void reset(int device_count);

  [[nodiscard]] int device_count() const;

 private:
  enum class State : std::uint8_t { unknown, no, possible, enabled };

  PeerAccess() : counts_devices_(true) {}  // the process's: counts its devices when it is first asked

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
  mutable std::uint64_t epoch_ = 0;    // of the driver that the rest is about
  mutable std::vector<State> states_;  // devices x devices, row major; empty: nothing is known
};

}  // namespace onehop
