// SPDX-License-Identifier: Apache-2.0
// Waits for another rank's store to shared memory: spins while that is cheap, then yields the core, then
// sleeps on a futex. If no thread sleeps, the waker pays one fence and one load.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/deadline.h"
#include "os/futex.h"

namespace onehop::os {

/// One per rank, in shared memory. All zero bytes are a valid initial state.
struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> rings{0};     ///< futex word: every ring() increments it
  std::atomic<std::uint32_t> sleepers{0};  ///< threads of the owner that sleep or are about to sleep
};

/// Wakes the owner's sleeping threads. Call it after publishing with a seq_cst read-modify-write. Pairs with
/// `wait_on`: the caller publishes and loads `sleepers`; the waiter increments `sleepers` and checks the
/// condition. All four are seq_cst, so at least one side sees the other.
inline void ring(Doorbell& bell) {
  if (bell.sleepers.load(std::memory_order_seq_cst) == 0) [[likely]]
    return;
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(bell.rings);
}

/// How long a wait spins before it sleeps.
struct SpinPolicy {
  std::uint32_t tight = 0;  ///< checks without a pause: the answer is a few cache misses away

  /// If every rank can have its own core (can_run_at_once), a tight spin responds fastest. It is short,
  /// because ranks may still share a core while other programs run, and each check then delays the rank it
  /// waits for. Otherwise yield the core at once; sched_yield returns immediately if no other thread wants
  /// it.
  static SpinPolicy for_ranks(bool core_each) { return {.tight = core_each ? 2000U : 1U}; }
  [[nodiscard]] bool spins() const { return tight > 1; }
};

/// A deadline that starts when a wait becomes slow, so that the fast path reads no clock. It covers all waits
/// of one call together.
class CallDeadline {
 public:
  /// Validates the timeout at once, before the other ranks learn of the call.
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

/// How long to yield the core before sleeping. A duration rather than a count: on a contended core, a single
/// sched_yield can take the whole time slice of another thread.
inline constexpr std::chrono::microseconds kYieldTime{200};

/// Longest sleep between two calls of `interrupt`: bounds how late a peer's death is detected.
inline constexpr Duration kSleepSlice{20};

/// Waits until `ready()` is true; returns false if the deadline passes first. `ready` must load with seq_cst
/// (as strong as acquire on x86, and free there). `interrupt()` is called periodically during a slow wait and
/// throws to end it (a dead peer, an abort).
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
    // Pairs with ring(): increment `sleepers`, then check the condition; see there.
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
