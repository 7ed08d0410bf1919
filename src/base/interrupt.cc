// SPDX-License-Identifier: Apache-2.0
#include "base/interrupt.h"

#include <utility>

#include "onehop/interrupt.h"

#include "base/check.h"

namespace onehop {
namespace {

thread_local std::function<bool()> interrupt_check;

}  // namespace

void set_interrupt_check(std::function<bool()> interrupted) {
  interrupt_check = std::move(interrupted);
}

void throw_if_interrupted(const char* phase) {
  if (interrupt_check && interrupt_check())
    fail(ErrorCode::aborted, "{}: interrupted by the check of the thread that waited", phase);
}

}  // namespace onehop
