#include "onehop/collectives.h"

#include "collective/host_call.h"

namespace onehop {

Algorithm gather(Group& group, const void* in, void* out, std::size_t count, DType type, Rank root,
                 Stream /*stream*/, const CallOptions& options) {
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
                       .options = options};
  return make_exchange(state, call, [=](host::Exchange& exchange, std::size_t block) {
    if (!is_root) exchange.send(0, block);
    exchange.longest = block;
    for (int r = 0; r < ranks; ++r) {
      exchange.arrival(r) = {
          .from = 0, .at = 0, .bytes = is_root ? block : 0, .to = static_cast<std::size_t>(r) * block};
    }
  });
}

}  // namespace onehop
