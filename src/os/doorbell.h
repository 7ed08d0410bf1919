// SPDX-License-Identifier: Apache-2.0
// Waiting for another rank's store to shared memory: spin while that is cheap, give the core away when it is
// not, sleep on a futex when it takes long. The waker pays one fence and one load when nobody sleeps.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/deadline.h"
#include "os/futex.h"

namespace onehop::os {

/// One per rank, in shared memory: zero bytes are a valid, silent bell.
struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> rings{0};     ///< futex word: changes with every ring
  std::atomic<std::uint32_t> sleepers{0};  ///< threads of the owner that sleep or are about to
};

/// Call after publishing with a seq_cst read-modify-write. Pairs with `wait_on`: of our publish
/// and load of `sleepers`, and its increment of `sleepers` and check of the condition, all seq_cst, at least
/// one side sees the other.
inline void ring(Doorbell& bell) {
  if (bell.sleepers.load(std::memory_order_seq_cst) == 0) [[likely]]
    return;
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(bell.rings);
}

/// How long to try before sleeping.
struct SpinPolicy {
  std::uint32_t tight = 0;  ///< look without pausing: the answer is some cache misses away

  /// When every rank can have a core of its own (can_run_at_once) a tight spin answers fastest; it is short,
  /// because ranks can share a core all the same while other programs run, and then every look is in the way
  /// of what it looks for. Else give the core away at once. sched_yield returns at once where nobody else
  /// wants the core.
  static SpinPolicy for_ranks(bool core_each) { return {.tight = core_each ? 2000U : 1U}; }
  [[nodiscard]] bool spins() const { return tight > 1; }
};

/// A deadline that starts once waiting got slow, so that the fast path reads no clock. It covers
/// all waits of one call together.
class CallDeadline {
 public:
  /// Refuses a bad timeout now: later, the other ranks have been told of the call already.
  explicit CallDeadline(Duration timeout) : timeout_(timeout) {
    require(timeout.count() >= 0, "a timeout must not be negative, got {} ms", timeout.count());
  }
  const Deadline& arm() {
    if (!deadline_) deadline_ = Deadline::after(timeout_);
    return *deadline_;
  }
  [[nodiscard]] Duration timeout() const { return timeout_; }

 private:
  Duration timeout_;
  std::optional<Deadline> deadline_;
};

/// How long to give the core away before sleeping. Time and not a count: where the core is wanted by others,
/// a single sched_yield can take their whole time slice.
inline constexpr std::chrono::microseconds kYieldTime{200};

/// Longest sleep between two looks at `interrupt`: bounds how late a peer's death is noticed.
inline constexpr Duration kSleepSlice{20};

/// Waits until `ready()`; false when the deadline passed first. `ready` must load with seq_cst (as strong as
/// acquire on x86 and free there). `interrupt()` is called now and then while waiting is slow; it throws to
/// end the wait (a dead peer, an abort).
template <class Ready, class Interrupt>
[[nodiscard]] bool wait_on(Doorbell& own, const SpinPolicy& policy, CallDeadline& deadline, Ready&& ready,
                           Interrupt&& interrupt) {
  for (std::uint32_t i = 0; i < policy.tight; ++i) {
    if (ready()) return true;
  }
  const Deadline& end = deadline.arm();
  const Deadline::Clock::time_point yield_end = Deadline::Clock::now() + kYieldTime;
  do {
    (void)::sched_yield();
    if (ready()) return true;
  } while (Deadline::Clock::now() < yield_end);
  while (true) {
    // Pairs with ring(): announce, then look; see there.
    own.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t rings = own.rings.load(std::memory_order_seq_cst);
    const bool done = ready();
    if (!done) futex_wait(own.rings, rings, std::min(end.left(), kSleepSlice));
    own.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (done || ready()) return true;
    interrupt();
    if (end.expired()) return ready();
  }
}

}  // namespace onehop::os
