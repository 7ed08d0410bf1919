// SPDX-License-Identifier: Apache-2.0
// Kernels that wait for peers cannot look at sockets, and a host that waits for kernels does not: a thread
// per GPU group does it for both.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "group/device_progress.h"
#include "group/mesh.h"
#include "kernel/device_team.h"

namespace onehop {

/// Carries failures both ways until it is destroyed: a failed wait on the device becomes the group's failure,
/// and the group's failure (a dead rank, an abort) ends the waits on the device. A rank that has left ends
/// the waits for what it has not done.
class DeviceWatch {
 public:
  DeviceWatch(std::shared_ptr<IpcChannel::Mesh> mesh, DeviceTeam& team, DeviceProgress& progress,
              Duration timeout);
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  /// How late a failure is passed on at most, apart from scheduling.
  static constexpr std::chrono::milliseconds kInterval{10};

  /// Passes on what there is now. Thread-safe.
  void look() noexcept;

  /// Waits until everything queued on `stream` has ended, and throws when the group has failed. When that
  /// takes longer than `timeout`, the error names the rank that holds the stream up: the one that the device
  /// waits for, one whose process does not answer, or one that has begun fewer collectives. This rank, if
  /// there is none. Thread-safe.
  void synchronize(Stream stream, Duration timeout);

  /// How much later than the host a kernel may give up that waits as long as the host does. It began to wait
  /// a moment earlier or later, and knows which rank it waits for, while the host knows its stream only. Less
  /// than the 100 ms by which any call may exceed its deadline (docs/reliability.md).
  static constexpr Duration kGrace{80};

  /// How long peers get to answer when a wait on the device has failed before they were asked. Their watches
  /// look every kInterval. Twice as long while more than one is silent: most of them are only slow.
  static constexpr Duration kTimeToAnswer{30};

 private:
  void run();
  /// Whom to name for a wait on the device that failed for `awaited`, which may be waiting itself: a rank
  /// that does not answer, or is behind with its collectives, is the reason.
  [[nodiscard]] Rank blame(Rank awaited);
  [[nodiscard]] Error stream_timeout(IpcChannel::Mesh::Wait& wait, Duration timeout);
  [[nodiscard]] RankSet peers() const;

  const std::shared_ptr<IpcChannel::Mesh> mesh_;
  DeviceTeam& team_;
  DeviceProgress& progress_;
  const Duration timeout_;
  const std::uint32_t generation_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

/// What a failed wait on the device means for rank `rank`. Pure.
[[nodiscard]] Error error_of(const DeviceFailure& failure, Rank rank);

}  // namespace onehop
