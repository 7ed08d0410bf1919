// SPDX-License-Identifier: Apache-2.0
// The check that onehop/interrupt.h sets, for the loops that wait.
#pragma once

namespace onehop {

/// Throws Error{aborted}, naming `phase`, if the check of this thread asks for it. Call it in slow waits only,
/// and without a lock that `abort` takes, since the check may run the caller's code.
void throw_if_interrupted(const char* phase);

}  // namespace onehop
