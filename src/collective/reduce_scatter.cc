// SPDX-License-Identifier: Apache-2.0
#include "kernel/host/reduce_scatter.h"

#include "onehop/collectives.h"

#include "collective/alone.h"
#include "collective/device_call.h"
#include "collective/group_call.h"
#include "collective/host_call.h"
#include "collective/plan.h"

namespace onehop {
namespace {

DeviceReduction device_reduce_scatter(const Group::State& group, const Arguments& call) {
  const ReduceScatterPlan plan = plan_device_reduce_scatter({.ranks = group.size(),
                                                             .bytes = call.block_bytes(),
                                                             .type = call.type,
                                                             .op = *call.op,
                                                             .forced = {},
                                                             .staging_bytes = group.staging_bytes(),
                                                             .resident_blocks = group.resident_blocks()});
  return {.in = call.in,
          .out = call.out,
          .bytes = call.block_bytes(),
          .type = call.type,
          .op = *call.op,
          .scale = call.scale(group.size()),
          .protocol = plan.protocol,
          .launch_bytes = plan.launch_bytes,
          .shape = plan.shape};
}

}  // namespace

Algorithm reduce_scatter(Group& group, const void* in, void* out, std::size_t count, DType type, ReduceOp op,
                         Stream stream, const CallOptions& options) {
  if (auto* const queue = GroupCall::Queue::open()) {
    return queue->add(
        group, [=, &group] { (void)reduce_scatter(group, in, out, count, type, op, stream, options); });
  }
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
                            .stream = stream,
                            .options = options};
  const CallDefect defect = find_defect(arguments, ranks);
  if (ranks == 1) return make_alone(state, arguments, defect, stream);
  if (state.device() != nullptr) {
    return make_device_call(state, arguments, defect, [&] {
      if (count != 0) state.device()->reduce_scatter(device_reduce_scatter(state, arguments), stream);
      return Algorithm::one_shot;
    });
  }
  return make_host_call(state, arguments, defect, [&](HostCall& call) {
    const std::size_t block = arguments.block_bytes();
    host::ReduceScatter reduction{.in = arguments.in,
                                  .out = arguments.out,
                                  .block = block,
                                  .type = type,
                                  .op = op,
                                  .scale = arguments.scale(ranks)};
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
