// Calls that a binding cannot even make, since it cannot read their arguments. The other ranks, which make
// them, must hear of it all the same.
#pragma once

#include "onehop/error.h"
#include "onehop/group.h"

#include "collective/call.h"

namespace onehop {

/// Refuses a call of this kind on all ranks, for `reason`, which this rank throws; the others hear `defect`.
/// In a GroupCall at its end, like the calls themselves.
void refuse_call(Group& group, CallKind kind, const Error& reason,
                 CallDefect defect = CallDefect::unusable_options);

/// Refuses a split on all ranks. Always throws.
void refuse_split(Group& group, const Error& reason);

}  // namespace onehop
