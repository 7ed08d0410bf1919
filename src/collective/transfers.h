// SPDX-License-Identifier: Apache-2.0
// The sends and receives that one rank makes at the same time: one of them, or all of a GroupCall.
#pragma once

#include <cstddef>
#include <vector>

#include "onehop/types.h"

#include "collective/call.h"
#include "group/state.h"
#include "kernel/device_team.h"

namespace onehop {

/// A send or a recv whose arguments have been checked.
struct Transfer {
  CallKind kind{};
  Rank peer;
  const std::byte* in = nullptr;  ///< of a send
  std::byte* out = nullptr;       ///< of a recv
  std::size_t count = 0;
  DType type = DType::f32;

  [[nodiscard]] std::size_t bytes() const { return count * size_of(type); }
};

/// Makes them: on host ranks returns when all are done, on GPUs when they are queued on `stream`. Those with
/// the same peer in the same direction run in their order, all others side by side. Whatever goes wrong, also
/// a disagreement of sender and receiver, is the failure of the group. `timeout` is that of all waits
/// together.
void make_transfers(Group::State& group, std::vector<Transfer> transfers, Duration timeout, Stream stream);

// --- for tests ---

/// Puts transfers of one peer and direction behind one another, in their order; the ranks after `rank` come
/// first, so that not all ranks begin with the same peer, and what it sends itself comes last.
void sort_by_pair(std::vector<Transfer>& transfers, int rank, int ranks);

/// Throws unless a rank's sends to itself are what it receives from itself. `transfers` are sorted.
void require_own_match(const std::vector<Transfer>& transfers, Rank rank);

/// On GPUs: the k-th transfer of each pair and direction in the k-th call, so that both ends count alike.
/// Empty ones move nothing and are in none. `transfers` are sorted.
[[nodiscard]] std::vector<DeviceExchange> to_exchanges(const std::vector<Transfer>& transfers);

}  // namespace onehop
