#include "onehop/collectives.h"

#include "collective/host_call.h"

namespace onehop {

Algorithm all_gather(Group& group, const void* in, void* out, std::size_t count, DType type,
                     Stream /*stream*/, const CallOptions& options) {
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
  return make_exchange(state, call, [ranks](host::Exchange& exchange, std::size_t block) {
    exchange.send(0, block);
    exchange.longest = block;
    for (int r = 0; r < ranks; ++r)
      exchange.arrival(r) = {.from = 0, .at = 0, .bytes = block, .to = static_cast<std::size_t>(r) * block};
  });
}

}  // namespace onehop
