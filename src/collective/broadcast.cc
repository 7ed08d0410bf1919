// SPDX-License-Identifier: Apache-2.0
#include "onehop/collectives.h"

#include "collective/exchange.h"
#include "collective/group_call.h"

namespace onehop {

Algorithm broadcast(Group& group, const void* in, void* out, std::size_t count, DType type, Rank root,
                    Stream stream, const CallOptions& options) {
  if (auto* const queue = GroupCall::Queue::open()) {
    return queue->add(group,
                      [=, &group] { (void)broadcast(group, in, out, count, type, root, stream, options); });
  }
  Group::State& state = group.state();
  const bool is_root = state.rank() == root;
  const Arguments call{.kind = CallKind::broadcast,
                       .in = as_bytes(in),
                       .out = as_bytes(out),
                       .count = count,
                       .type = type,
                       .in_blocks = is_root ? 1 : 0,
                       .root = root,
                       .stream = stream,
                       .options = options};
  const auto from_root = [&](int s, int /*r*/) -> std::optional<Route> {
    if (s != root.value) return std::nullopt;
    return Route{};
  };
  // With up to two ranks everyone gets it from the root.
  if (state.device() == nullptr || state.size() <= 2)
    return make_exchange(state, call, stream, Fan::same, from_root);
  return make_device_call(state, call, find_defect(call, state.size()), [&] {
    if (count != 0) {
      state.device()->broadcast({.in = call.in, .out = call.out, .bytes = call.block_bytes(), .root = root},
                                stream);
    }
    return Algorithm::one_shot;
  });
}

}  // namespace onehop
