// SPDX-License-Identifier: Apache-2.0
// A point in time at which a wait ends. Durations become deadlines once, at the public boundary, so that a
// wait of several steps ends at the time that the caller requested.
#pragma once

#include <algorithm>
#include <chrono>

#include "onehop/types.h"

#include "base/check.h"

namespace onehop {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// The deadline `timeout` from now. Throws Error{invalid_argument} for negative timeouts. Timeouts above
  /// one year count as one year, which avoids overflow.
  static Deadline after(Duration timeout) {
    require(timeout.count() >= 0, "a timeout must not be negative, got {} ms", timeout.count());
    constexpr Duration kYear = std::chrono::hours{24 * 365};
    return Deadline(Clock::now() + std::min(timeout, kYear), timeout);
  }

  /// A deadline that has passed, which makes calls poll instead of wait.
  static const Deadline& passed() {
    static const Deadline deadline = after(Duration{0});
    return deadline;
  }

  /// A slightly earlier deadline (up to 250 ms), for the rank that knows what is missing, so that it can
  /// still tell the ranks that wait for it. Messages keep the caller's timeout.
  [[nodiscard]] Deadline with_time_to_tell() const {
    return Deadline(at_ - std::min(timeout_ / 8, Duration{250}), timeout_);
  }

  /// A slightly later deadline, for messages that are in flight at the deadline. Messages keep the caller's
  /// timeout.
  [[nodiscard]] Deadline with_grace(Duration grace) const { return Deadline(at_ + grace, timeout_); }

  /// A deadline at most `duration` from now, for one of several attempts. Messages keep the caller's timeout.
  [[nodiscard]] Deadline at_most(Duration duration) const {
    return Deadline(std::min(at_, Clock::now() + duration), timeout_);
  }

  /// A slightly earlier deadline (up to 60 ms): the time to ask the other ranks which rank they wait for, so
  /// that the answers arrive before the end. Sleeping ranks check their sockets every 20 ms.
  [[nodiscard]] Deadline with_time_to_ask() const {
    return Deadline(at_ - std::min(timeout_ / 2, Duration{60}), timeout_);
  }

  [[nodiscard]] bool expired() const { return Clock::now() >= at_; }
  /// Time left, never negative. Rounded up, so that a poll with it does not wake early and spin.
  [[nodiscard]] Duration left() const {
    const auto rest = at_ - Clock::now();
    return rest.count() <= 0 ? Duration{0} : std::chrono::ceil<Duration>(rest);
  }
  /// min(left, slice) in milliseconds for poll(2).
  [[nodiscard]] int poll_ms(Duration slice = Duration{1000}) const {
    return static_cast<int>(std::min(left(), slice).count());
  }
  [[nodiscard]] Clock::time_point at() const { return at_; }
  /// The timeout that this deadline was created from, for messages.
  [[nodiscard]] Duration timeout() const { return timeout_; }

 private:
  Deadline(Clock::time_point at, Duration timeout) : at_(at), timeout_(timeout) {}
  Clock::time_point at_;
  Duration timeout_;
};

}  // namespace onehop
