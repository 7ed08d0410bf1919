// SPDX-License-Identifier: Apache-2.0
// Refuses calls whose arguments a binding cannot read, so that it cannot make the call. The other ranks,
// which do make it, must still learn of that.
#pragma once

#include "onehop/call.h"
#include "onehop/error.h"
#include "onehop/group.h"
#include "onehop/ipc.h"

#include "call/check_call.h"
#include "group/state.h"

namespace onehop {

/// Refuses a call on all ranks. This rank throws `reason`; the others receive `error`. In a GroupCall this
/// happens at the end of the scope, as for calls.
void refuse_call(Group& group, Collective collective, const Error& reason,
                 ArgumentError error = ArgumentError::unusable_options);
/// The same without queueing. Always throws.
[[noreturn]] void refuse_now(Group::State& group, const CollectiveCall& call, ArgumentError error,
                             const Error& reason);

/// Refuses a Group::register_buffer on all ranks with `reason`. Always throws.
void refuse_registration(Group& group, const Error& reason);

/// Refuses a Group::allocate on all ranks, and leaves the group usable. Always throws.
void refuse_allocation(Group& group, const Error& reason);

/// Refuses a split on all ranks. Always throws.
void refuse_split(Group& group, const Error& reason);

/// Refuses an all-gather of bytes on all ranks, and leaves the group or channel usable. Always throws.
void refuse_all_gather(Group& group, const Error& reason);
void refuse_all_gather(IpcChannel& channel, const Error& reason);

/// Refuses one of the other calls of a channel, which ends it. Always throws.
[[noreturn]] void refuse_channel_call(IpcChannel& channel, const char* call, const Error& reason);

}  // namespace onehop
