// SPDX-License-Identifier: Apache-2.0
// A thread per GPU group that watches both the sockets and the device. Kernels that wait for peers cannot
// look at sockets, and a host that waits for kernels does not.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "backend/cuda/communicator.h"
#include "group/device_progress.h"
#include "group/mesh.h"

namespace onehop {

/// Carries failures in both directions until it is destroyed. A failed wait on the device becomes the group's
/// failure; the group's failure (a dead rank, an abort) ends the waits on the device. When a rank has left,
/// waits for work that it has not done end too.
class DeviceWatch {
 public:
  DeviceWatch(std::shared_ptr<IpcChannel::Mesh> mesh, Communicator& communicator, DeviceProgress& progress,
              Duration timeout);
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  /// The longest delay before a failure is passed on, apart from scheduling.
  static constexpr std::chrono::milliseconds kInterval{10};

  /// Passes on what there is now. Thread-safe.
  void look() noexcept;

  /// Waits until everything queued on `stream` has ended; throws when the group has failed. If that takes
  /// longer than `timeout`, the error names the rank that holds the stream up: the rank that the device waits
  /// for, a rank whose process does not answer, or a rank that has begun fewer collectives. If there is none,
  /// it names this rank. Thread-safe.
  void synchronize(Stream stream, Duration timeout);

  /// How much later than the host a kernel with the same deadline may give up. The kernel began to wait a
  /// moment earlier or later. It knows which rank it waits for, while the host only knows the stream. Less
  /// than the 100 ms by which any call may exceed its deadline (docs/reliability.md).
  static constexpr Duration kGrace{80};

  /// How long peers get to answer when a wait on the device failed before they were asked. Their watches look
  /// every kInterval. Doubled while more than one rank is silent, since most of them are only slow.
  static constexpr Duration kTimeToAnswer{30};

 private:
  void run();
  /// Which rank to name for a device wait on `awaited` that failed. `awaited` may be waiting itself: a rank
  /// that does not answer, or has begun fewer collectives, is the cause.
  [[nodiscard]] Rank blame(Rank awaited);
  [[nodiscard]] Error stream_timeout(IpcChannel::Mesh::Wait& wait, Duration timeout);
  [[nodiscard]] RankSet peers() const;

  const std::shared_ptr<IpcChannel::Mesh> mesh_;
  Communicator& communicator_;
  DeviceProgress& progress_;
  const Duration timeout_;
  const std::uint32_t generation_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

/// The error that a failed wait on the device means for rank `rank`. Pure.
[[nodiscard]] Error error_of(const DeviceFailure& failure, Rank rank);

}  // namespace onehop
