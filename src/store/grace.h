// SPDX-License-Identifier: Apache-2.0
// Extra time of a store's operations beyond their timeouts.
#pragma once

#include <atomic>
#include <chrono>

#include "base/deadline.h"
#include "base/interrupt.h"

namespace onehop::store {

/// Extends the deadlines of operations slightly, so that a reply in flight still arrives, and an operation
/// with a zero timeout succeeds while other ranks use the store. After an operation has expired in spite of
/// it, the following ones get no extra time: a caller that makes several calls after its deadline exceeds it
/// by one grace period only. In the clean-up after an interrupt, operations end with its time. Thread-safe.
class Grace {
 public:
  /// Less than the 100 ms by which a call may exceed its deadline.
  static constexpr Duration kLength{75};

  [[nodiscard]] Deadline extend(const Deadline& deadline) const {
    return within_clean_up(exhausted() ? deadline : deadline.with_grace(kLength));
  }
  /// True for some time after an operation has expired.
  [[nodiscard]] bool exhausted() const { return Clock::now().time_since_epoch().count() < resumes_.load(); }

  void operation_ended() { resumes_ = 0; }
  void operation_expired() {
    constexpr std::chrono::milliseconds kPause{250};
    resumes_ = (Clock::now() + kPause).time_since_epoch().count();
  }

 private:
  using Clock = Deadline::Clock;
  std::atomic<Clock::rep> resumes_ = 0;  ///< relaxed: a hint that orders no other data
};

}  // namespace onehop::store
