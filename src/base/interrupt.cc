// SPDX-License-Identifier: Apache-2.0
#include "base/interrupt.h"

#include <chrono>
#include <utility>

#include "onehop/interrupt.h"

#include "base/check.h"

namespace onehop {
namespace {

/// Some waits poll every few microseconds, and a check may be slow: that of Python takes the GIL.
constexpr std::chrono::milliseconds kInterval{20};

thread_local std::function<bool()> interrupt_check;
thread_local std::chrono::steady_clock::time_point next_check;

}  // namespace

void set_interrupt_check(std::function<bool()> interrupted) {
  interrupt_check = std::move(interrupted);
  next_check = {};
}

void throw_if_interrupted(const char* phase) {
  if (!interrupt_check) return;
  const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
  if (now < next_check) return;
  next_check = now + kInterval;
  if (interrupt_check())
    fail(ErrorCode::aborted, "{}: interrupted by the check of the thread that waited", phase);
}

}  // namespace onehop
