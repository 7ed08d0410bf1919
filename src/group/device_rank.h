// SPDX-License-Identifier: Apache-2.0
// What a rank with a GPU has besides the mesh: memory on its device that the kernels of all ranks share, the communicator
// that queues those kernels, and a thread that watches them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "onehop/group.h"

#include "backend/cuda/communicator.h"
#include "backend/selector.h"
#include "group/device_progress.h"
#include "group/device_watch.h"
#include "memory/backend.h"
#include "os/fork_guard.h"

namespace onehop {

/// Keeps memory that a device still uses mapped until the process ends.
void keep_for_ever(MappedBlocks& blocks) noexcept;

/// Part of a Group::State, which it refers to.
class DeviceRank {
 public:
  /// Collective: compares the devices of all ranks, and shares memory between them. `progress` is that of every rank, in
  /// memory of the host that all ranks share.
  DeviceRank(Group::State& group, std::shared_ptr<IpcChannel::Mesh> mesh,
             std::vector<host::Progress*> progress, const Deadline& deadline);
  /// Memory that work on the device still uses stays mapped until the process ends. In the child of a fork the resources
  /// are the parent's, and stay as they are.
  ~DeviceRank();
  DeviceRank(const DeviceRank&) = delete;
  DeviceRank& operator=(const DeviceRank&) = delete;

  [[nodiscard]] Communicator& communicator() const { return *communicator_; }
  [[nodiscard]] DeviceProgress& progress() const { return *progress_; }
  [[nodiscard]] DeviceWatch& watch() const { return *watch_; }
  /// Allocates and maps memory of the device.
  [[nodiscard]] const MemoryBackend& memory() const { return *memory_; }
  /// The slowest kind of link between two of the ranks.
  [[nodiscard]] Links links() const { return links_; }

  /// Before leaving: waits for the group's work on the device, at most for the longest timeout of the group and its calls.
  /// Then ends this rank's own waits, and waits a little longer.
  void end_work() noexcept;
  /// After leaving: whether nothing on the device uses the communicator's memory, or ever will. One thread at a time.
  [[nodiscard]] bool memory_is_unused() noexcept;
  /// Frees the communicator's memory, which must be unused.
  void free_memory() noexcept { segments_.clear(); }
  [[nodiscard]] bool memory_is_free() const { return segments_.empty(); }

  /// For the log: the device was still working when `what` was to be freed.
  [[nodiscard]] std::string unended_work(const char* phase, const char* what, Duration limit) const;

 private:
  /// The devices of all ranks, as far as the algorithms depend on them.
  struct Devices {
    cuda::GroupShape shape;  ///< with the number of blocks that ranks which share a device can have
    Links links = Links::nvlink;
    bool alone = true;  ///< no other rank uses this rank's device
  };
  /// Collective.
  [[nodiscard]] Devices compare_devices(const Deadline& deadline) const;

  const std::uint32_t generation_ = os::fork_generation();
  Group::State& group_;
  Links links_ = Links::nvlink;
  std::unique_ptr<MemoryBackend> memory_;
  MappedBlocks segments_;  ///< the scratch memory of all ranks
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<DeviceProgress> progress_;
  std::unique_ptr<DeviceWatch> watch_;
  std::uint64_t ended_calls_ = 0;  ///< the calls whose work has ended, if work_ended_
  bool work_ended_ = true;         ///< false: its work continues, in memory that must stay mapped
};

}  // namespace onehop
