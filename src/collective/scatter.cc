#include "onehop/collectives.h"

#include "collective/host_call.h"

namespace onehop {

Algorithm scatter(Group& group, const void* in, void* out, std::size_t count, DType type, Rank root,
                  Stream /*stream*/, const CallOptions& options) {
  Group::State& state = group.state();
  const int ranks = state.size();
  const int me = state.rank().value;
  const bool is_root = state.rank() == root;
  const Arguments call{.kind = CallKind::scatter,
                       .in = as_bytes(in),
                       .out = as_bytes(out),
                       .count = count,
                       .type = type,
                       .in_blocks = is_root ? ranks : 0,
                       .in_place = -me,
                       .root = root,
                       .options = options};
  return make_exchange(state, call, [=](host::Exchange& exchange, std::size_t block) {
    if (is_root) {
      for (int i = 1; i < ranks; ++i)
        exchange.send(static_cast<std::size_t>((me + i) % ranks) * block, block);
    }
    exchange.longest = static_cast<std::size_t>(ranks - 1) * block;
    for (int r = 0; r < ranks; ++r) {
      const auto place = static_cast<std::size_t>(host::place_in_stream(me, r, ranks));
      exchange.arrival(r) = {.from = static_cast<std::size_t>(me) * block,
                             .at = place * block,
                             .bytes = r == root.value ? block : 0,
                             .to = 0};
    }
  });
}

}  // namespace onehop
