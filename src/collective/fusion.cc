// SPDX-License-Identifier: Apache-2.0
#include "collective/fusion.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "collective/backend.h"
#include "collective/check_call.h"

namespace onehop {
namespace {

/// Compares addresses as numbers: pointers into different arrays must not be compared.
bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const auto first = reinterpret_cast<std::uintptr_t>(a.data());
  const auto second = reinterpret_cast<std::uintptr_t>(b.data());
  return first < second + b.size() && second < first + a.size();
}

}  // namespace

std::size_t count_similar(std::span<const CollectiveCall> calls) {
  const CollectiveCall& first = calls.front();
  const auto other = std::ranges::find_if(calls, [&](const CollectiveCall& each) {
    return each.collective != Collective::all_reduce || each.type != first.type || each.op != first.op ||
           each.algorithm != first.algorithm || each.stream.handle != first.stream.handle ||
           std::bit_cast<std::uint64_t>(each.factor) != std::bit_cast<std::uint64_t>(first.factor);
  });
  return static_cast<std::size_t>(other - calls.begin());
}

std::size_t count_fused(Group::State& group, std::span<const CollectiveCall> calls) {
  const CollectiveCall& first = calls.front();
  // The size of an invalid call is meaningless.
  if (group.size() == 1 || first.collective != Collective::all_reduce ||
      find_argument_error(first) != ArgumentError::none)
    return 1;
  return CollectiveBackend::of(group).count_fused(group, calls.first(count_similar(calls)));
}

std::optional<std::size_t> find_conflict(std::span<const CollectiveCall> calls) {
  // At most kMaxListed of them are not empty.
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
