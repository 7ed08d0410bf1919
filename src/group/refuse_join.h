// SPDX-License-Identifier: Apache-2.0
// Refuses to join with options that a binding cannot express as JoinOptions. The other ranks, which wait for
// this one, must learn of that.
#pragma once

#include "onehop/error.h"
#include "onehop/group.h"
#include "onehop/store.h"

namespace onehop {

/// Refuses a Group::join on all ranks. Always throws: `reason`, or what keeps this rank from the others.
[[noreturn]] void refuse_join(Store& store, const JoinOptions& options, const Error& reason);

/// The same for a Group::from_env.
[[noreturn]] void refuse_join_from_env(JoinOptions options, const Error& reason);

}  // namespace onehop
