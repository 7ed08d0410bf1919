// SPDX-License-Identifier: Apache-2.0
// The check that onehop/interrupt.h sets, for the loops that wait.
#pragma once

#include <chrono>
#include <optional>

#include "base/deadline.h"

namespace onehop {

/// Longest sleep of a wait between two calls of throw_if_interrupted.
inline constexpr Duration kInterruptSlice{20};

/// Throws Error{aborted}, naming `phase`, if the check of this thread asks for it. Call it in slow waits only,
/// and without a lock that `abort` takes, since the check may run the caller's code.
void throw_if_interrupted(const char* phase);

/// Sleeps for `pause`, but not beyond the deadline, and calls throw_if_interrupted meanwhile.
void pause_in_wait(std::chrono::microseconds pause, const Deadline& deadline, const char* phase);

/// The time that a call gets to clean up after an interrupt: it tells other ranks and erases keys. While this
/// object lives, its thread is not interrupted again, and stores that do not answer must not delay the end.
class CleanUpTime {
 public:
  static constexpr Duration kLength{50};

  CleanUpTime();
  ~CleanUpTime();
  CleanUpTime(const CleanUpTime&) = delete;
  CleanUpTime& operator=(const CleanUpTime&) = delete;

 private:
  const std::optional<Deadline> outer_;  ///< a clean-up inside another one gets no more time
};

/// `deadline`, or the end of this thread's CleanUpTime if that is earlier.
[[nodiscard]] Deadline within_clean_up(const Deadline& deadline);

}  // namespace onehop
