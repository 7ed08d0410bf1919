// SPDX-License-Identifier: Apache-2.0
// Rank 0's heartbeat while it waits for other ranks in a rendezvous (rendezvous.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onehop/store.h"

#include "base/deadline.h"
#include "group/messages.h"

namespace onehop {

/// How often rank 0 repeats which ranks it waits for.
inline constexpr Duration kHeartbeatInterval{50};
/// How long the other ranks believe a heartbeat after it last changed.
inline constexpr Duration kHeartbeatBelieved{300};

/// Rank 0's side.
class HeartbeatSender {
 public:
  /// `store` must outlive this. `size`: of the group, as rank 0 was told.
  HeartbeatSender(Store& store, std::string key, int size)
      : store_(store), key_(std::move(key)), size_(size) {}

  /// Sets the key to the ranks that rank 0 waits for, with a new beat. `nonce`: as rank 0 announced it.
  void send(const os::Id& nonce, const std::vector<int>& missing, Duration timeout);
  [[nodiscard]] const std::string& key() const { return key_; }
  /// The value that was sent last; empty if there was none.
  [[nodiscard]] const std::string& last() const { return last_; }

 private:
  Store& store_;
  const std::string key_;
  const int size_;
  std::string last_;
  std::uint64_t beat_ = 0;
};

/// The other ranks' side: what they learn from rank 0. Pure: its input is the value under the key, and the
/// time.
class HeartbeatListener {
 public:
  void hear(const std::optional<std::string>& raw, Deadline::Clock::time_point now);
  /// The ranks that rank 0 waits for; nullopt when it has not been heard of recently.
  [[nodiscard]] std::optional<Waiting> believed(Deadline::Clock::time_point now) const;

 private:
  bool started_ = false;
  std::optional<std::string> last_;
  std::optional<Deadline::Clock::time_point> changed_;
};

}  // namespace onehop
