// SPDX-License-Identifier: Apache-2.0
#include "collective/alone.h"

#include <algorithm>

#include "collective/device_call.h"
#include "collective/host_call.h"
#include "collective/plan.h"
#include "kernel/host/copy.h"
#include "kernel/host/reduce.h"

namespace onehop {
namespace {

/// What the call reports. The legacy policy declines here what it declines in larger groups.
Algorithm choose(const Group::State& group, const Arguments& call) {
  if (call.options.algorithm) return *call.options.algorithm;
  if (call.kind != CallKind::all_reduce || group.options().policy != AlgorithmPolicy::legacy)
    return Algorithm::one_shot;
  if (group.device() == nullptr && !legacy_alignment_ok(call.in, call.out)) return Algorithm::none;
  return plan_all_reduce({.ranks = 1,
                          .bytes = call.block_bytes(),
                          .type = call.type,
                          .op = *call.op,
                          .policy = AlgorithmPolicy::legacy,
                          .forced = {},
                          .staging_bytes = group.staging_bytes()})
      .algorithm;
}

void copy_on_host(const Arguments& call) {
  if (call.op == ReduceOp::premul_sum) {
    const void* const in = call.in;
    host::reduce_function(call.type, *call.op)(call.out, &in, 1, call.count, call.scale(1));
  } else {
    host::copy(call.out, call.in, call.block_bytes());
  }
}

/// The kernel of packets, which with one rank uses no slot: one launch takes as much as it can count.
DeviceAllReduce describe_scaling(const Group::State& group, const Arguments& call) {
  constexpr std::size_t kLaunchBytes = std::size_t{1} << 30;
  constexpr std::size_t kBlock = 256;
  const std::size_t packets = (std::min(call.block_bytes(), kLaunchBytes) + 7) / 8;
  const auto most_blocks = static_cast<std::size_t>(group.resident_blocks());
  return {.in = call.in,
          .out = call.out,
          .bytes = call.block_bytes(),
          .type = call.type,
          .op = *call.op,
          .scale = call.scale(1),
          .protocol = DeviceProtocol::packets,
          .launch_bytes = kLaunchBytes,
          .shape = {.grid = static_cast<unsigned>(std::clamp<std::size_t>(packets / kBlock, 1, most_blocks)),
                    .block = kBlock},
          .phase = device_phase(call.kind)};
}

void queue_copy(const Group::State& group, const Arguments& call, Stream stream) {
  if (call.op == ReduceOp::premul_sum)
    return group.device()->all_reduce(describe_scaling(group, call), stream);
  DeviceExchange exchange{.phase = device_phase(call.kind)};
  exchange.transfers[0] = {
      .in = call.in, .sent = call.block_bytes(), .out = call.out, .received = call.block_bytes()};
  group.device()->exchange(exchange, stream);
}

}  // namespace

Algorithm make_alone(Group::State& group, const Arguments& call, CallDefect defect, Stream stream) {
  if (group.device() == nullptr) {
    return make_host_call(group, call, defect, [&](HostCall& host) {
      host.step();
      const Algorithm algorithm = choose(group, call);
      if (algorithm != Algorithm::none && call.count != 0) copy_on_host(call);
      return algorithm;
    });
  }
  return make_device_call(group, call, defect, [&] {
    const Algorithm algorithm = choose(group, call);
    if (algorithm != Algorithm::none && call.count != 0) queue_copy(group, call, stream);
    return algorithm;
  });
}

}  // namespace onehop
