#include "kernel/host/reduce_scatter.h"

#include "onehop/collectives.h"

#include "collective/host_call.h"
#include "collective/plan.h"

namespace onehop {

Algorithm reduce_scatter(Group& group, const void* in, void* out, std::size_t count, DType type, ReduceOp op,
                         Stream /*stream*/, const CallOptions& options) {
  Group::State& state = group.state();
  const int ranks = state.size();
  const Arguments arguments{.kind = CallKind::reduce_scatter,
                            .in = as_bytes(in),
                            .out = as_bytes(out),
                            .count = count,
                            .type = type,
                            .in_blocks = ranks,
                            .in_place = -state.rank().value,
                            .op = op,
                            .options = options};
  require_host_ranks(state, arguments.kind);
  return make_host_call(state, arguments, find_defect(arguments, ranks), [&](HostCall& call) {
    const std::size_t block = arguments.block_bytes();
    host::ReduceScatter reduction{
        .in = arguments.in, .out = arguments.out, .block = block, .type = type, .op = op};
    if (static_cast<std::size_t>(ranks - 1) * block >= kMinZeroCopyBytes) {
      call.show_input(arguments.in, static_cast<std::size_t>(ranks) * block);
      call.meet();
      reduction.in_peers = call.inputs();
    }
    host::reduce_scatter(
        call.team(), reduction, [&] { call.step(); }, [&](int r) { call.wait(r); });
    if (reduction.in_peers != nullptr) call.require_no_failure();
    return Algorithm::one_shot;
  });
}

}  // namespace onehop
