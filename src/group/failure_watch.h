// SPDX-License-Identifier: Apache-2.0
// One thread per process that watches groups for programs that make no calls which could throw: that replay
// graphs, or wait for streams by other means.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "onehop/error.h"

#include "base/deadline.h"
#include "os/fork_guard.h"

namespace onehop {

/// What is watched: see Group::watch.
class WatchedGroup {
 public:
  virtual ~WatchedGroup() = default;
  /// The failure that no call has thrown yet. Never waits.
  [[nodiscard]] virtual std::optional<Error> unreported() = 0;
  /// For messages, for example "rank 1 of 'name'".
  [[nodiscard]] virtual std::string title() const = 0;
  /// Nothing can fail any more.
  [[nodiscard]] virtual bool ended() const = 0;
};

/// Thread-safe.
class FailureWatch {
 public:
  /// Time between two looks.
  static constexpr std::chrono::milliseconds kInterval{50};

  /// `end_process` is called after a group's grace; it need not return.
  explicit FailureWatch(std::function<void()> end_process) : end_process_(std::move(end_process)) {}
  ~FailureWatch();
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  /// That of this process, which ends it with exit code 1.
  [[nodiscard]] static FailureWatch& instance();

  /// Watches until the object is gone or has ended. nullopt: only logs. Replaces an earlier grace.
  void add(const std::shared_ptr<WatchedGroup>& watched, std::optional<Duration> grace);

 private:
  struct Entry {
    std::weak_ptr<WatchedGroup> watched;
    std::optional<Duration> grace;
    std::optional<Deadline> end;  ///< set once the failure has been seen
  };

  void run();
  /// Returns whether to go on watching.
  [[nodiscard]] bool look(Entry& entry);
  void forget_parent();

  const std::function<void()> end_process_;
  std::uint32_t generation_ = os::fork_generation();
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::vector<Entry> entries_;
  std::thread thread_;
};

}  // namespace onehop
