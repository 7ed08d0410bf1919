// SPDX-License-Identifier: Apache-2.0
#include "onehop/collectives.h"

#include "collective/exchange.h"
#include "collective/group_call.h"

namespace onehop {

Algorithm all_to_all(Group& group, const void* in, void* out, std::size_t count, DType type, Stream stream,
                     const CallOptions& options) {
  if (auto* const queue = GroupCall::Queue::open()) {
    return queue->add(group, [=, &group] { (void)all_to_all(group, in, out, count, type, stream, options); });
  }
  Group::State& state = group.state();
  const int ranks = state.size();
  const Arguments call{.kind = CallKind::all_to_all,
                       .in = as_bytes(in),
                       .out = as_bytes(out),
                       .count = count,
                       .type = type,
                       .in_blocks = ranks,
                       .out_blocks = ranks,
                       .in_place = std::nullopt,
                       .stream = stream,
                       .options = options};
  return make_exchange(state, call, stream, Fan::own,
                       [](int s, int r) -> std::optional<Route> { return Route{.from = r, .to = s}; });
}

}  // namespace onehop
