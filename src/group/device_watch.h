// Kernels that wait for peers cannot look at sockets, and a host that waits for kernels does not: a thread
// per GPU group does it for both.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "group/mesh.h"
#include "kernel/device_team.h"

namespace onehop {

/// Carries failures both ways until it is destroyed: a failed wait on the device becomes the group's failure,
/// and the group's failure (a dead rank, an abort) ends the waits on the device. A rank that has left ends
/// the waits for what it has not done.
class DeviceWatch {
 public:
  DeviceWatch(std::shared_ptr<IpcChannel::Mesh> mesh, DeviceTeam& team, Duration timeout);
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  /// How late a failure is passed on at most, apart from scheduling.
  static constexpr std::chrono::milliseconds kInterval{10};

  /// Passes on what there is now. Thread-safe.
  void look() noexcept;

  /// Waits until everything queued on `stream` has ended, and throws when the group has failed. A stream that
  /// takes longer than `timeout` is this rank's failure, unless a wait on it has failed: see kGrace.
  /// Thread-safe.
  void synchronize(Stream stream, Duration timeout);

  /// How much later than the host a kernel may give up that waits as long as the host does. It began to wait
  /// a moment earlier or later, and knows which rank it waits for, while the host knows its stream only.
  static constexpr Duration kGrace{100};

 private:
  void run();

  const std::shared_ptr<IpcChannel::Mesh> mesh_;
  DeviceTeam& team_;
  const Duration timeout_;
  const std::uint32_t generation_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

/// What a failed wait on the device means for rank `rank`. Pure.
[[nodiscard]] Error error_of(const DeviceFailure& failure, Rank rank, Duration timeout);

}  // namespace onehop
