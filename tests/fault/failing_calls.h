// SPDX-License-Identifier: Apache-2.0
// System calls that fail on demand: this program's own definitions stand before the C library's, count, and
// pass the call on. Not armed they only pass it on.
#pragma once

#include <vector>

namespace onehop::fault {

struct FailingCall {
  const char* name;
  int error;  ///< a value of errno (or what the call returns instead) that it is documented to give
};

/// False in builds in which calls cannot be intercepted.
[[nodiscard]] bool can_fail_calls();
/// What can be made to fail, and how.
[[nodiscard]] const std::vector<FailingCall>& failing_calls();
/// Those that a signal may interrupt.
[[nodiscard]] const std::vector<FailingCall>& interrupted_calls();

/// From now on the `nth` call (from 0) of that function in this process fails, once.
void arm_failing_call(const FailingCall& call, int nth);
/// True when it did. No call fails from now on.
bool disarm_failing_call();

}  // namespace onehop::fault
