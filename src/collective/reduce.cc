// SPDX-License-Identifier: Apache-2.0
#include "onehop/collectives.h"

#include "collective/alone.h"
#include "collective/device_call.h"
#include "collective/group_call.h"
#include "collective/host_call.h"
#include "collective/plan.h"
#include "kernel/host/all_reduce.h"

namespace onehop {
namespace {

Algorithm device_reduce(Group::State& group, const Arguments& call, Stream stream) {
  const std::size_t bytes = call.block_bytes();
  const ReducePlan plan = plan_device_reduce({.ranks = group.size(),
                                              .bytes = bytes,
                                              .type = call.type,
                                              .op = *call.op,
                                              .forced = call.options.algorithm,
                                              .staging_bytes = group.staging_bytes(),
                                              .resident_blocks = group.resident_blocks()});
  if (bytes == 0) return plan.algorithm;
  if (plan.of_all) {
    const DevicePlan& of_all = *plan.of_all;
    group.device()->all_reduce({.in = call.in,
                                .out = group.rank() == call.root ? call.out : nullptr,
                                .bytes = bytes,
                                .type = call.type,
                                .op = *call.op,
                                .scale = call.scale(group.size()),
                                .protocol = of_all.protocol,
                                .launch_bytes = of_all.launch_bytes,
                                .shape = of_all.shape,
                                .phase = DeviceFault::reduce},
                               stream);
  } else {
    group.device()->reduce({.in = call.in,
                            .out = call.out,
                            .bytes = bytes,
                            .type = call.type,
                            .op = *call.op,
                            .scale = call.scale(group.size())},
                           *call.root, plan.algorithm == Algorithm::two_shot, stream);
  }
  return plan.algorithm;
}

}  // namespace

Algorithm reduce(Group& group, const void* in, void* out, std::size_t count, DType type, ReduceOp op,
                 Rank root, Stream stream, const CallOptions& options) {
  if (auto* const queue = GroupCall::Queue::open()) {
    return queue->add(group,
                      [=, &group] { (void)reduce(group, in, out, count, type, op, root, stream, options); });
  }
  Group::State& state = group.state();
  const Arguments arguments{.kind = CallKind::reduce,
                            .in = as_bytes(in),
                            .out = as_bytes(out),
                            .count = count,
                            .type = type,
                            .out_blocks = state.rank() == root ? 1 : 0,
                            .op = op,
                            .root = root,
                            .stream = stream,
                            .options = options};
  const CallDefect defect = find_defect(arguments, state.size());
  if (state.size() == 1) return make_alone(state, arguments, defect, stream);
  if (state.device() != nullptr) {
    return make_device_call(state, arguments, defect,
                            [&] { return device_reduce(state, arguments, stream); });
  }
  return make_host_call(state, arguments, defect, [&](HostCall& call) {
    host::Team& team = call.team();
    host::Reduction reduction{.root = root.value,
                              .in = arguments.in,
                              .out = arguments.out,
                              .bytes = arguments.block_bytes(),
                              .type = type,
                              .op = op,
                              .scale = arguments.scale(team.size())};
    const Plan plan = plan_all_reduce({.ranks = team.size(),
                                       .bytes = reduction.bytes,
                                       .type = type,
                                       .op = op,
                                       .forced = options.algorithm,
                                       .staging_bytes = team.staging_bytes(),
                                       .tuning = &call.group().tuning().table});
    reduction.chunk = plan.chunk;
    if (reduction.bytes == 0) {
      call.meet();
      return plan.algorithm;
    }
    const auto step = [&] { call.step(); };
    const auto wait = [&](int r) { call.wait(r); };
    if (plan.algorithm == Algorithm::one_shot) {
      host::one_shot(team, reduction, step, wait);
      return plan.algorithm;
    }
    if (reduction.bytes >= kMinZeroCopyBytes) {
      call.show_input(reduction.in, reduction.bytes);
      call.meet();
      reduction.in_peers = call.inputs();
    }
    host::two_shot(team, reduction, step, wait);
    if (reduction.in_peers != nullptr) call.require_no_failure();
    return plan.algorithm;
  });
}

}  // namespace onehop
