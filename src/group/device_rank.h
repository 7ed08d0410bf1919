// SPDX-License-Identifier: Apache-2.0
// A rank with a GPU: memory on its device that the kernels of all ranks share, the communicator that queues those kernels,
// and a thread that watches them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/communicator.h"
#include "group/device_progress.h"
#include "group/device_watch.h"
#include "group/local_rank.h"
#include "group/state.h"
#include "memory/backend.h"
#include "os/fork_guard.h"

namespace onehop {

/// Refers to its Group::State.
class DeviceRank final : public LocalRank {
 public:
  /// Collective: compares the devices of all ranks, and shares memory between them.
  DeviceRank(Group::State& group, std::shared_ptr<IpcChannel::Mesh> mesh, const Deadline& deadline);
  /// Memory that work on the device still uses stays mapped until the process ends. In the child of a fork the resources
  /// are the parent's, and stay as they are.
  ~DeviceRank() override;

  /// For code that serves GPU ranks only.
  [[nodiscard]] static DeviceRank& of(const Group::State& group) {
    return static_cast<DeviceRank&>(group.local());
  }
  /// The most blocks that wait for other ranks in a kernel, by ONEHOP_MAX_BLOCKS. Throws Error{invalid_argument}.
  [[nodiscard]] static std::optional<int> most_blocks();
  [[nodiscard]] Communicator& communicator() const { return *communicator_; }
  [[nodiscard]] DeviceProgress& progress() const { return *progress_; }

  [[nodiscard]] Links links() const override { return links_; }
  [[nodiscard]] Description describe() const override;
  void synchronize(Stream stream, Duration timeout) override { watch_->synchronize(stream, timeout); }
  /// Tells of a refusal that the others do not know of, and ends this rank's work on the device.
  void before_leaving() noexcept override;
  void after_leaving(os::TimedMutex& turn, const std::vector<BufferRange>& buffers) noexcept override;
  [[nodiscard]] BufferParts allocate(std::size_t bytes, const BufferOptions& options,
                                     const Deadline& deadline) override;
  SymmetricBuffer register_buffer(void* data, std::size_t bytes, const BufferOptions& options,
                                  const Error* refusal) override;
  /// Waits for the device. Memory that it still uses stays mapped until the process ends.
  void before_unmapping(MappedBlocks& owners) noexcept override;
  [[nodiscard]] Communicator& require_communicator(const char* what) const override;

 private:
  /// The devices of all ranks, as far as the algorithms depend on them.
  struct Devices {
    cuda::GroupShape shape;  ///< with the blocks that all ranks may have, also those that share a device
    Links links = Links::nvlink;
    bool alone = true;  ///< no other rank uses this rank's device
  };
  /// Collective.
  [[nodiscard]] Devices compare_devices(const Deadline& deadline) const;
  void pass_on_failure() noexcept override { watch_->look(); }
  /// Waits for the group's work on the device, at most for the longest timeout of the group and its calls. Then ends this
  /// rank's own waits, and waits a little longer.
  void end_work() noexcept;
  /// After leaving: whether nothing on the device uses the communicator's memory, or ever will. One thread at a time.
  [[nodiscard]] bool memory_is_unused() noexcept;
  /// For the log: the device was still working when `what` was to be freed.
  [[nodiscard]] std::string unended_work(const char* phase, const char* what, Duration limit) const;
  /// Collective: maps memory that the user provides on every rank on all ranks. It has no signal pads.
  [[nodiscard]] BufferParts exchange_user_memory(std::byte* data, std::size_t bytes,
                                                 const BufferOptions& options, const Error* refusal,
                                                 const Deadline& deadline);
  /// Collective: pads in memory of the host, which `parts` then owns.
  void add_host_pads(BufferParts& parts, const BufferOptions& options, const Deadline& deadline,
                     const char* phase);

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
