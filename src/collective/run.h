// SPDX-License-Identifier: Apache-2.0
// The path of every call from the public functions to the group's backend.
#pragma once

#include <span>

#include "onehop/call.h"
#include "onehop/group.h"

#include "call/check_call.h"
#include "group/state.h"

namespace onehop {

/// Whether a call is a send or recv. Such a call involves two ranks, and the group has no common order of
/// them.
[[nodiscard]] inline bool is_transfer(const CollectiveCall& call) {
  return call.collective == Collective::send || call.collective == Collective::recv;
}

/// Runs a barrier. It waits on the host, in GPU groups too, and is never queued.
void run_barrier(Group::State& group, const CollectiveCall& call);

/// Runs the first of these collectives, and those that share its launch. Returns how many that were. Host ranks preserve the
/// order. On GPUs, calls that share a launch are unordered; which calls those are depends only on values on which ranks must
/// agree.
[[nodiscard]] std::size_t run_first(Group::State& group, std::span<const CollectiveCall> calls);

/// Runs one collective, or several that share a launch. They are not queued. Where an error is not none, all ranks learn of
/// it and this one throws.
void run_now(Group::State& group, std::span<const CollectiveCall> calls,
             std::span<const ArgumentError> errors);

}  // namespace onehop
