// SPDX-License-Identifier: Apache-2.0
// The sends and receives that one rank performs at the same time: a single one, or all of a GroupCall.
#pragma once

#include <span>
#include <vector>

#include "call/call.h"
#include "group/state.h"

namespace onehop {

/// Runs a send or recv, or queues it if this thread has a GroupCall open. A refused transfer fails the group.
/// Otherwise the peer, which waits for it, might match the next transfer instead.
Algorithm run_transfer(Group& group, const CollectiveCall& call);

/// Runs sends and receives without errors. On host ranks it returns when all are done, on GPUs when they are
/// queued. Those with the same peer and direction run in order, all others concurrently. Any error, including
/// a disagreement of sender and receiver, fails the group.
void run_transfers(Group::State& group, std::vector<CollectiveCall> transfers);

/// Groups transfers by peer and direction, preserving their order within each group. The ranks after `rank`
/// come first, so that not all ranks begin with the same peer. Transfers with itself come last.
void sort_by_pair(std::vector<CollectiveCall>& transfers, int rank, int ranks);

/// Throws unless a rank's sends to itself match its receives from itself. `transfers` are sorted.
void require_own_match(std::span<const CollectiveCall> transfers, Rank rank);

/// For GPUs: puts the k-th transfer of each pair and direction into the k-th round, so that both ends have
/// the same counts. Empty transfers move nothing and are in no round. `transfers` are sorted.
[[nodiscard]] std::vector<Transfers> to_rounds(std::span<const CollectiveCall> transfers);

}  // namespace onehop
