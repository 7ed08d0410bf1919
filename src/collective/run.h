// SPDX-License-Identifier: Apache-2.0
// The way of every call from the public functions to the group's backend.
#pragma once

#include <span>

#include "onehop/group.h"

#include "collective/check_call.h"
#include "group/state.h"

namespace onehop {

/// Whether a call is a send or recv: it concerns two ranks, and the group has no common order of them.
[[nodiscard]] inline bool is_transfer(const CollectiveCall& call) {
  return call.collective == Collective::send || call.collective == Collective::recv;
}

/// Makes the call, or queues it if this thread has a GroupCall open (Algorithm::none then).
Algorithm run(Group& group, const CollectiveCall& call);

/// A barrier waits on the host, in groups of GPUs too, and is never queued.
void run_barrier(Group::State& group, const CollectiveCall& call);

/// Makes collectives in their order, which host ranks keep. On GPUs what goes in one launch has none, and
/// which calls those are follows from what ranks must agree on.
void run_in_order(Group::State& group, std::span<const CollectiveCall> calls);

/// Makes a call that is not queued. If `error` is not none, all ranks hear of it and this one throws.
Algorithm run_now(Group::State& group, const CollectiveCall& call, ArgumentError error);

}  // namespace onehop
