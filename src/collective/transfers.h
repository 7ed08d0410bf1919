// SPDX-License-Identifier: Apache-2.0
// The sends and receives that one rank makes at the same time: one of them, or all of a GroupCall.
#pragma once

#include <span>
#include <vector>

#include "group/state.h"
#include "kernel/call.h"

namespace onehop {

/// Makes a send or recv, or queues it if this thread has a GroupCall open. A transfer that is refused is the
/// failure of the group: the peer, which waits for it, must not take the next one for it.
Algorithm run_transfer(Group& group, const CollectiveCall& call);

/// Makes sends and receives without errors: on host ranks returns when all are done, on GPUs when they are
/// queued. Those with the same peer in the same direction run in their order, all others side by side.
/// Whatever goes wrong, also a disagreement of sender and receiver, is the failure of the group.
void run_transfers(Group::State& group, std::vector<CollectiveCall> transfers);

/// The part of that which is done by a host rank within Group::State::call.
void transfer_on_host(Group::State& group, std::span<const CollectiveCall> sorted, const char* phase,
                      os::CallDeadline& deadline);

/// Puts transfers of one peer and direction behind one another, in their order; the ranks after `rank` come
/// first, so that not all ranks begin with the same peer, and what it sends itself comes last.
void sort_by_pair(std::vector<CollectiveCall>& transfers, int rank, int ranks);

/// Throws unless a rank's sends to itself are what it receives from itself. `transfers` are sorted.
void require_own_match(std::span<const CollectiveCall> transfers, Rank rank);

/// On GPUs: the k-th transfer of each pair and direction in the k-th round, so that both ends count alike.
/// Empty ones move nothing and are in none. `transfers` are sorted.
[[nodiscard]] std::vector<Transfers> to_rounds(std::span<const CollectiveCall> transfers);

}  // namespace onehop
