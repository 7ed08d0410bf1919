// SPDX-License-Identifier: Apache-2.0
// A mutex with timed locking. It replaces std::timed_mutex, whose timed lock is unknown to the
// ThreadSanitizer of GCC 12, which would report every unlock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/deadline.h"
#include "os/futex.h"

namespace onehop::os {

/// For threads of one process. Works with std::unique_lock and std::lock_guard's adopt_lock.
class TimedMutex {
 public:
  [[nodiscard]] bool try_lock() {
    std::uint32_t expected = kFree;
    // acquire: pairs with the release in unlock().
    return state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }

  /// Returns false at the deadline.
  [[nodiscard]] bool try_lock_until(const Deadline& deadline) {
    return try_lock_until(deadline, [] {});
  }
  /// Calls `between()` at least every 20 ms while it waits; that may throw.
  template <class Between>
  [[nodiscard]] bool try_lock_until(const Deadline& deadline, Between&& between) {
    // acquire: pairs with the release in unlock(). From now on the word is "contended", also for the new
    // holder, which cannot know whether other threads still wait.
    while (state_.exchange(kContended, std::memory_order_acquire) != kFree) {
      const Duration left = deadline.left();
      if (left.count() == 0) return false;
      futex_wait(state_, kContended, std::min(left, kSlice));
      between();
    }
    return true;
  }

  void unlock() {
    // release: pairs with the acquire in the locking functions.
    if (state_.exchange(kFree, std::memory_order_release) == kContended) futex_wake_all(state_);
  }

 private:
  static constexpr Duration kSlice{20};
  enum State : std::uint32_t { kFree, kHeld, kContended };
  std::atomic<std::uint32_t> state_{kFree};
};

}  // namespace onehop::os
