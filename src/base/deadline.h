// SPDX-License-Identifier: Apache-2.0
// A point in time after which waiting stops. Durations become deadlines once, at the public boundary, so that
// a wait made of several steps ends when the caller said and not later.
#pragma once

#include <algorithm>
#include <chrono>

#include "onehop/types.h"

#include "base/check.h"

namespace onehop {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// `timeout` from now. Negative timeouts are refused; anything beyond a year is a year (avoids overflow).
  static Deadline after(Duration timeout) {
    require(timeout.count() >= 0, "a timeout must not be negative, got {} ms", timeout.count());
    constexpr Duration kYear = std::chrono::hours{24 * 365};
    return Deadline(Clock::now() + std::min(timeout, kYear), timeout);
  }

  /// A little earlier (up to 250 ms): for whoever knows best what is missing, so that it can still tell those
  /// who only wait for it. Messages keep the caller's timeout.
  [[nodiscard]] Deadline with_time_to_tell() const {
    return Deadline(at_ - std::min(timeout_ / 8, Duration{250}), timeout_);
  }

  /// A little later, for what is on its way at the deadline. Messages keep the caller's timeout.
  [[nodiscard]] Deadline with_grace(Duration grace) const { return Deadline(at_ + grace, timeout_); }

  /// At most `duration` from now, for one of several attempts. Messages keep the caller's timeout.
  [[nodiscard]] Deadline at_most(Duration duration) const {
    return Deadline(std::min(at_, Clock::now() + duration), timeout_);
  }

  /// A little earlier (up to 60 ms): when to ask the other ranks whom they wait for, so that their answers
  /// are there at the end. Ranks that sleep look at their sockets every 20 ms.
  [[nodiscard]] Deadline with_time_to_ask() const {
    return Deadline(at_ - std::min(timeout_ / 2, Duration{60}), timeout_);
  }

  [[nodiscard]] bool expired() const { return Clock::now() >= at_; }
  /// Time left, never negative, rounded up so that a poll with it does not wake early and spin.
  [[nodiscard]] Duration left() const {
    const auto rest = at_ - Clock::now();
    return rest.count() <= 0 ? Duration{0} : std::chrono::ceil<Duration>(rest);
  }
  /// min(left, slice) in milliseconds for poll(2).
  [[nodiscard]] int poll_ms(Duration slice = Duration{1000}) const {
    return static_cast<int>(std::min(left(), slice).count());
  }
  [[nodiscard]] Clock::time_point at() const { return at_; }
  /// The timeout this deadline was made from, for messages.
  [[nodiscard]] Duration timeout() const { return timeout_; }

 private:
  Deadline(Clock::time_point at, Duration timeout) : at_(at), timeout_(timeout) {}
  Clock::time_point at_;
  Duration timeout_;
};

}  // namespace onehop
