// SPDX-License-Identifier: Apache-2.0
// Making the calls of a StressPlan.
#pragma once

#include <span>

#include "onehop/group.h"
#include "onehop/types.h"

#include "gpu/stress_ops.h"

namespace onehop::testing {

/// Makes the call that `op` describes. A pointer that this rank does not need is null.
void make_call(Group& group, const StressArena& arena, const StressOp& op, Stream stream);

/// Makes the calls in order, with those that are `together` in one GroupCall.
void make_calls(Group& group, const StressArena& arena, std::span<const StressOp> ops, Stream stream);

}  // namespace onehop::testing
