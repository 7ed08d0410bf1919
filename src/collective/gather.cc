// SPDX-License-Identifier: Apache-2.0
#include "onehop/collectives.h"

#include "collective/exchange.h"
#include "collective/group_call.h"

namespace onehop {

Algorithm gather(Group& group, const void* in, void* out, std::size_t count, DType type, Rank root,
                 Stream stream, const CallOptions& options) {
  if (auto* const queue = GroupCall::Queue::open()) {
    return queue->add(group,
                      [=, &group] { (void)gather(group, in, out, count, type, root, stream, options); });
  }
  Group::State& state = group.state();
  const int ranks = state.size();
  const bool is_root = state.rank() == root;
  const Arguments call{.kind = CallKind::gather,
                       .in = as_bytes(in),
                       .out = as_bytes(out),
                       .count = count,
                       .type = type,
                       .out_blocks = is_root ? ranks : 0,
                       .in_place = state.rank().value,
                       .root = root,
                       .stream = stream,
                       .options = options};
  return make_exchange(state, call, stream, Fan::same, [&](int s, int r) -> std::optional<Route> {
    if (r != root.value) return std::nullopt;
    return Route{.to = s};
  });
}

}  // namespace onehop
