// SPDX-License-Identifier: Apache-2.0
#include "collective/host_backend.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

#include "backend/host/algorithm.h"
#include "backend/host/reduce.h"
#include "collective/host_call.h"

namespace onehop {
namespace {

/// The call with its input times this rank's own factor. It sums, and multiplies by 1.
CollectiveCall with_products(Group::State& group, const CollectiveCall& call) {
  const std::span<const std::byte> input = call.input();
  const void* const in = input.data();
  std::byte* const products = HostRank::of(group).made_input(input.size());
  host::reduce_function(call.type, ReduceOp::premul_sum)(
      products, &in, 1, input.size() / call.element_bytes(), product_with(call.type, *call.own_factor));
  CollectiveCall made = call;
  made.in = products;
  return made;
}

}  // namespace

CollectiveBackend::Outcome HostBackend::run(Group::State& group, const CollectiveCall& call,
                                            ArgumentError error, os::CallDeadline& deadline) const {
  if (error == ArgumentError::none) error = find_host_memory_error(call);
  std::optional<CollectiveCall> weighted;
  if (call.own_factor && error == ArgumentError::none && call.count != 0)
    weighted = with_products(group, call);
  HostCall self(group, weighted ? *weighted : call, error, deadline);
  if (error != ArgumentError::none) self.begin();  // throws
  const Selector::Selection& selected =
      group.selector().select(call, call.block_bytes(), call.options.algorithm);
  const host::HostAlgorithm& algorithm = **std::ranges::find(host::host_algorithms(), selected.algorithm);
  try {
    if (call.has_data()) {
      algorithm.run(self, selected.choice.chunk);
    } else {
      self.begin();
    }
    return {.algorithm = call.options.algorithm.value_or(algorithm.kind)};
  } catch (const host::Unreadable& unreadable) {
    fail_unreadable(group, unreadable, deadline, call.traits().name);
  }
}

}  // namespace onehop
