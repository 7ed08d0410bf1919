// SPDX-License-Identifier: Apache-2.0
#include "collective/fusion.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "backend/cuda/algorithms/push/push_algorithms.h"
#include "call/check_call.h"
#include "collective/backend.h"

namespace onehop {

std::size_t count_similar(std::span<const CollectiveCall> calls) {
  const CollectiveCall& first = calls.front();
  if (first.options.own_factor != nullptr) return 1;
  const auto other = std::ranges::find_if(calls, [&](const CollectiveCall& each) {
    return each.collective != Collective::all_reduce || each.options.own_factor != nullptr ||
           each.type != first.type || each.op != first.op ||
           each.options.algorithm != first.options.algorithm ||
           std::bit_cast<std::uint64_t>(each.options.factor) !=
               std::bit_cast<std::uint64_t>(first.options.factor);
  });
  return static_cast<std::size_t>(other - calls.begin());
}

std::size_t count_fused(const Group::State& group, std::span<const CollectiveCall> calls) {
  const CollectiveCall& first = calls.front();
  // The size of an invalid call is meaningless.
  if (calls.size() == 1 || !CollectiveBackend::of(group).fuses() || group.size() == 1 ||
      first.collective != Collective::all_reduce || find_argument_error(first) != ArgumentError::none)
    return 1;
  return count_fitting(group.selector(), calls.first(count_similar(calls)));
}

std::size_t count_fitting(const Selector& selector, std::span<const CollectiveCall> calls) {
  const auto is_one_shot = [&](const CollectiveCall& call, std::size_t bytes) {
    return selector.select(call, bytes, call.options.algorithm).algorithm->kind == Algorithm::one_shot;
  };
  std::size_t messages = 0;
  std::size_t packets = 0;
  std::size_t fitting = 0;
  for (const CollectiveCall& call : calls) {
    // A call that is too large runs separately, and is rejected there.
    const std::size_t bytes = std::min(call.count, max_elements(call.type)) * call.element_bytes();
    if (!is_one_shot(call, bytes)) break;
    const std::size_t more = cuda::fused_packets(bytes);
    // Up to the limit of one-shot, the extra time of LL packets is no more than the cost of a launch.
    if (more > cuda::kMaxFusedPackets - packets ||
        (more != 0 && (messages == cuda::kMaxFused || !is_one_shot(call, (packets + more) * cuda::kLLWidth))))
      break;
    messages += more != 0 ? 1 : 0;
    packets += more;
    ++fitting;
  }
  return messages == 0 ? 1 : std::max<std::size_t>(fitting, 1);
}

std::optional<std::size_t> find_conflict(std::span<const CollectiveCall> calls) {
  // At most cuda::kMaxFused of them are not empty.
  std::vector<const CollectiveCall*> before;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const CollectiveCall& call = calls[i];
    if (call.count == 0) continue;
    for (const CollectiveCall* const other : before) {
      if (overlap(call.output(), other->input()) || overlap(call.output(), other->output()) ||
          overlap(call.input(), other->output()))
        return i;
    }
    before.push_back(&call);
  }
  return std::nullopt;
}

}  // namespace onehop
