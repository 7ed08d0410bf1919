// SPDX-License-Identifier: Apache-2.0
// What an operation of a store may take beyond its timeout.
#pragma once

#include <atomic>
#include <chrono>

#include "base/deadline.h"

namespace onehop::store {

/// Gives operations a little more time than they have: a reply that is on its way still arrives, and a zero
/// timeout succeeds while other ranks use the store. Once it was in vain, the next operations get none, so
/// that a caller who makes several after its deadline exceeds that by one grace and not by many. Thread-safe.
class Grace {
 public:
  /// Less than the 100 ms by which a call may exceed its deadline.
  static constexpr Duration kLength{75};

  [[nodiscard]] Deadline extend(const Deadline& deadline) const {
    return exhausted() ? deadline : deadline.with_grace(kLength);
  }
  /// True for a while after an operation expired.
  [[nodiscard]] bool exhausted() const { return Clock::now().time_since_epoch().count() < resumes_.load(); }

  void operation_ended() { resumes_ = 0; }
  void operation_expired() {
    constexpr std::chrono::milliseconds kPause{250};
    resumes_ = (Clock::now() + kPause).time_since_epoch().count();
  }

 private:
  using Clock = Deadline::Clock;
  std::atomic<Clock::rep> resumes_ = 0;  ///< a hint on its own: orders nothing else
};

}  // namespace onehop::store
