// SPDX-License-Identifier: Apache-2.0
#include "base/interrupt.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "onehop/interrupt.h"

#include "base/check.h"

namespace onehop {
namespace {

/// Some waits poll every few microseconds, and a check may be slow: that of Python takes the GIL. A little less
/// than a sleep of kInterruptSlice, so that every one is followed by a check.
constexpr std::chrono::milliseconds kInterval{18};

thread_local std::function<bool()> interrupt_check;
thread_local std::chrono::steady_clock::time_point next_check;
thread_local std::optional<Deadline> clean_up_end;

}  // namespace

void set_interrupt_check(std::function<bool()> interrupted) {
  interrupt_check = std::move(interrupted);
  next_check = {};
}

void throw_if_interrupted(const char* phase) {
  if (!interrupt_check || clean_up_end) return;
  const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
  if (now < next_check) return;
  next_check = now + kInterval;
  if (interrupt_check())
    fail(ErrorCode::aborted, "{}: interrupted by the check of the thread that waited", phase);
}

void pause_in_wait(std::chrono::microseconds pause, const Deadline& deadline, const char* phase) {
  using Clock = Deadline::Clock;
  const Clock::time_point end = std::min<Clock::time_point>(Clock::now() + pause, deadline.at());
  throw_if_interrupted(phase);
  for (Clock::time_point now = Clock::now(); now < end; now = Clock::now()) {
    std::this_thread::sleep_until(std::min<Clock::time_point>(end, now + kInterruptSlice));
    throw_if_interrupted(phase);
  }
}

CleanUpTime::CleanUpTime() : outer_(clean_up_end) {
  if (!clean_up_end) clean_up_end = Deadline::after(kLength);
}

CleanUpTime::~CleanUpTime() {
  clean_up_end = outer_;
}

Deadline within_clean_up(const Deadline& deadline) {
  return clean_up_end && clean_up_end->at() < deadline.at() ? *clean_up_end : deadline;
}

}  // namespace onehop
