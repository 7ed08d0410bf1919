#include "kernel/host/all_reduce.h"

#include <optional>

#include "onehop/collectives.h"

#include "collective/device_call.h"
#include "collective/group_call.h"
#include "collective/host_call.h"
#include "collective/plan.h"

namespace onehop {
namespace {

Algorithm host_all_reduce(HostCall& call) {
  const Arguments& arguments = call.arguments();
  host::Team& team = call.team();
  host::Reduction reduction{.in = arguments.in,
                            .out = arguments.out,
                            .bytes = arguments.block_bytes(),
                            .type = arguments.type,
                            .op = *arguments.op,
                            .scale = arguments.scale(team.size())};
  const std::optional<Algorithm> forced = arguments.options.algorithm;
  const AlgorithmPolicy policy = forced ? AlgorithmPolicy::tuned : call.group().options().policy;
  const Plan plan = plan_all_reduce({.ranks = team.size(),
                                     .bytes = reduction.bytes,
                                     .type = reduction.type,
                                     .op = reduction.op,
                                     .policy = policy,
                                     .forced = forced,
                                     .staging_bytes = team.staging_bytes(),
                                     .tuning = &call.group().tuning().table});
  reduction.chunk = plan.chunk;
  if (policy == AlgorithmPolicy::legacy && !legacy_alignment_ok(reduction.in, reduction.out)) call.decline();

  // Small calls announce themselves along with their first data. The others first find out what the ranks
  // pass.
  const bool zero_copy = plan.algorithm == Algorithm::two_shot && reduction.bytes >= kMinZeroCopyBytes;
  if (zero_copy) {
    call.show_input(reduction.in, reduction.bytes);
    call.show_output(reduction.out, reduction.bytes);
  }
  if (zero_copy || reduction.bytes == 0 || plan.algorithm == Algorithm::none ||
      policy == AlgorithmPolicy::legacy) {
    call.meet();
    if (plan.algorithm == Algorithm::none || call.anyone_declined()) return Algorithm::none;
    if (reduction.bytes == 0) return plan.algorithm;
    if (zero_copy) {
      reduction.in_peers = call.inputs();
      reduction.out_peers = call.outputs();
    }
  }

  const auto step = [&] { call.step(); };
  const auto wait = [&](int r) { call.wait(r); };
  if (plan.algorithm == Algorithm::one_shot) {
    host::one_shot(team, reduction, step, wait);
  } else {
    host::two_shot(team, reduction, step, wait);
  }
  if (reduction.in_peers != nullptr || reduction.out_peers != nullptr) call.require_no_failure();
  return plan.algorithm;
}

/// Queues one call on this rank's GPU.
Algorithm device_all_reduce(Group::State& group, const Arguments& call, Stream stream) {
  const CallOptions& options = call.options;
  const std::size_t bytes = call.block_bytes();
  const DevicePlan plan =
      plan_device_all_reduce({.ranks = group.size(),
                              .bytes = bytes,
                              .type = call.type,
                              .op = *call.op,
                              .policy = options.algorithm ? AlgorithmPolicy::tuned : group.options().policy,
                              .forced = options.algorithm,
                              .staging_bytes = group.staging_bytes(),
                              .copy_bytes = group.copy_bytes(),
                              .resident_blocks = group.resident_blocks(),
                              .tuning = &group.tuning().table});
  if (plan.algorithm == Algorithm::none || bytes == 0) return plan.algorithm;
  group.device()->all_reduce({.in = call.in,
                              .out = call.out,
                              .bytes = bytes,
                              .type = call.type,
                              .op = *call.op,
                              .scale = call.scale(group.size()),
                              .protocol = plan.protocol,
                              .launch_bytes = plan.launch_bytes,
                              .chunk = plan.chunk,
                              .grid = plan.grid,
                              .block = plan.block,
                              .early = plan.early},
                             stream);
  return plan.algorithm;
}

}  // namespace

Algorithm all_reduce(Group& group, const void* in, void* out, std::size_t count, DType type, ReduceOp op,
                     Stream stream, const CallOptions& options) {
  if (auto* const queue = GroupCall::Queue::open()) {
    return queue->add(group,
                      [=, &group] { (void)all_reduce(group, in, out, count, type, op, stream, options); });
  }
  Group::State& state = group.state();
  const Arguments call{.kind = CallKind::all_reduce,
                       .in = as_bytes(in),
                       .out = as_bytes(out),
                       .count = count,
                       .type = type,
                       .op = op,
                       .options = options};
  const CallDefect defect = find_defect(call, state.size());
  if (state.device() == nullptr) return make_host_call(state, call, defect, host_all_reduce);
  return make_device_call(state, call, defect, [&] { return device_all_reduce(state, call, stream); });
}

}  // namespace onehop
