// SPDX-License-Identifier: Apache-2.0
// System calls that fail on demand. This program's own definitions override the C library's, count the calls,
// and forward them. Unless armed, they only forward.
#pragma once

#include <vector>

namespace onehop::fault {

struct FailingCall {
  const char* name;
  int error;  ///< an errno value (or other result) that the function is documented to give
};

/// False in builds in which calls cannot be intercepted.
[[nodiscard]] bool can_fail_calls();
/// The functions that can be made to fail, and their errors.
[[nodiscard]] const std::vector<FailingCall>& failing_calls();
/// The functions that a signal may interrupt.
[[nodiscard]] const std::vector<FailingCall>& interrupted_calls();

/// From now on the `nth` call (from 0) of that function in this process fails, once.
void arm_failing_call(const FailingCall& call, int nth);
/// Disarms; true if the call did fail.
bool disarm_failing_call();

}  // namespace onehop::fault
