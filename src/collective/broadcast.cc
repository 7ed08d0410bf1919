#include "onehop/collectives.h"

#include "collective/host_call.h"

namespace onehop {

Algorithm broadcast(Group& group, const void* in, void* out, std::size_t count, DType type, Rank root,
                    Stream /*stream*/, const CallOptions& options) {
  Group::State& state = group.state();
  const bool is_root = state.rank() == root;
  const Arguments call{.kind = CallKind::broadcast,
                       .in = as_bytes(in),
                       .out = as_bytes(out),
                       .count = count,
                       .type = type,
                       .in_blocks = is_root ? 1 : 0,
                       .root = root,
                       .options = options};
  return make_exchange(state, call, [&](host::Exchange& exchange, std::size_t block) {
    if (is_root) exchange.send(0, block);
    exchange.longest = block;
    for (Rank r{0}; r.value < state.size(); ++r.value)
      exchange.arrival(r.value) = {.from = 0, .at = 0, .bytes = r == root ? block : 0, .to = 0};
  });
}

}  // namespace onehop
