#include "onehop/collectives.h"

#include "collective/exchange.h"

namespace onehop {

Algorithm all_gather(Group& group, const void* in, void* out, std::size_t count, DType type, Stream stream,
                     const CallOptions& options) {
  Group::State& state = group.state();
  const int ranks = state.size();
  const Arguments call{.kind = CallKind::all_gather,
                       .in = as_bytes(in),
                       .out = as_bytes(out),
                       .count = count,
                       .type = type,
                       .out_blocks = ranks,
                       .in_place = state.rank().value,
                       .options = options};
  return make_exchange(state, call, stream, Fan::same,
                       [](int s, int /*r*/) -> std::optional<Route> { return Route{.to = s}; });
}

}  // namespace onehop
