// SPDX-License-Identifier: Apache-2.0
// Calls in a group of one rank: there is nobody to wait for, and the result is this rank's own input.
#pragma once

#include "collective/arguments.h"
#include "group/state.h"

namespace onehop {

/// Makes one, whichever it is but all_to_all_v: copies `in` to `out`, times the factor for premul_sum. What
/// larger groups refuse is refused here, too.
Algorithm make_alone(Group::State& group, const Arguments& call, CallDefect defect, Stream stream);

}  // namespace onehop
