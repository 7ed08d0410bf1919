// SPDX-License-Identifier: Apache-2.0
#include "collective/host_backend.h"

#include <algorithm>

#include "collective/host_call.h"
#include "collective/plan.h"
#include "collective/transfers.h"
#include "kernel/host/all_reduce.h"
#include "kernel/host/copy.h"
#include "kernel/host/reduce.h"
#include "kernel/host/reduce_scatter.h"

namespace onehop {
namespace {

/// For a group of one rank, where there is no other rank to wait for.
Algorithm run_alone(HostCall& self) {
  const CollectiveCall& call = self.call();
  const AlgorithmPolicy policy = self.group().options().policy;
  self.step();
  const bool declined = policy == AlgorithmPolicy::legacy && call.collective == Collective::all_reduce &&
                        !call.algorithm && !legacy_alignment_ok(call.in, call.out);
  const Algorithm algorithm =
      declined ? Algorithm::none : plan_alone(call, policy, self.group().staging_bytes());
  if (algorithm == Algorithm::none || call.count == 0) return algorithm;
  if (call.traits().reduces && call.op == ReduceOp::premul_sum) {
    const void* const in = call.in;
    host::reduce_function(call.type, call.op)(call.out, &in, 1, call.count, call.scale());
  } else {
    host::copy(call.out, call.in, call.block_bytes());
  }
  return algorithm;
}

/// Runs all_reduce and reduce.
Algorithm run_reduction(HostCall& self) {
  const CollectiveCall& call = self.call();
  host::Team& team = self.team();
  const bool to_all = call.collective == Collective::all_reduce;
  const AlgorithmPolicy policy =
      to_all && !call.algorithm ? self.group().options().policy : AlgorithmPolicy::tuned;
  const std::size_t bytes = call.block_bytes();
  const Plan plan = plan_all_reduce({.ranks = call.ranks,
                                     .bytes = bytes,
                                     .type = call.type,
                                     .op = call.op,
                                     .policy = policy,
                                     .forced = call.algorithm,
                                     .staging_bytes = team.staging_bytes(),
                                     .tuning = &self.group().tuning().table});
  const bool legacy = policy == AlgorithmPolicy::legacy;
  if (legacy && !legacy_alignment_ok(call.in, call.out)) self.decline();

  // Small calls are announced along with their first data. For others the ranks first learn where the data of
  // all ranks lies.
  const bool zero_copy = plan.algorithm == Algorithm::two_shot && bytes >= kMinZeroCopyBytes;
  if (zero_copy) {
    self.show_input(call.input());
    if (to_all) self.show_output(call.output());
  }
  if (zero_copy || legacy || bytes == 0 || plan.algorithm == Algorithm::none) {
    self.begin();
    if (plan.algorithm == Algorithm::none || self.anyone_declined()) return Algorithm::none;
    if (bytes == 0) return plan.algorithm;
  }

  host::Reduction reduction{.root = to_all ? host::Reduction::kAll : call.root.value,
                            .in = call.in,
                            .out = call.out,
                            .bytes = bytes,
                            .type = call.type,
                            .op = call.op,
                            .scale = call.scale(),
                            .chunk = plan.chunk};
  if (zero_copy) {
    reduction.in_peers = self.inputs();
    if (to_all) reduction.out_peers = self.outputs();
  }
  const auto step = [&] { self.step(); };
  const auto wait = [&](int r) { self.wait(r); };
  if (plan.algorithm == Algorithm::one_shot) {
    host::one_shot(team, reduction, step, wait);
  } else {
    host::two_shot(team, reduction, step, wait);
  }
  if (reduction.in_peers != nullptr || reduction.out_peers != nullptr) self.require_no_failure();
  return plan.algorithm;
}

void run_reduce_scatter(HostCall& self) {
  const CollectiveCall& call = self.call();
  host::ReduceScatter reduction{.in = call.in,
                                .out = call.out,
                                .block = call.block_bytes(),
                                .type = call.type,
                                .op = call.op,
                                .scale = call.scale()};
  if (static_cast<std::size_t>(call.ranks - 1) * reduction.block >= kMinZeroCopyBytes) {
    self.show_input(call.input());
    self.begin();
    reduction.in_peers = self.inputs();
  }
  host::reduce_scatter(
      self.team(), reduction, [&] { self.step(); }, [&](int r) { self.wait(r); });
  if (reduction.in_peers != nullptr) self.require_no_failure();
}

/// For collectives that move blocks of one size.
host::Exchange describe_exchange(const CollectiveCall& call) {
  const std::size_t block = call.block_bytes();
  // A rank has either one block, which goes to every rank that it sends to, or a separate block for each.
  const bool one_block = call.traits().in == Amount::block;
  host::Exchange exchange;
  exchange.in = call.in;
  exchange.out = call.out;
  for (int i = 1; i < call.ranks; ++i) {
    const int r = (call.rank + i) % call.ranks;
    if (!call.moves(call.rank, r)) continue;
    exchange.send(call.in_offset(r), block);
    if (one_block) break;
  }
  exchange.longest = one_block ? block : static_cast<std::size_t>(call.ranks - 1) * block;
  for (int r = 0; r < call.ranks; ++r) {
    host::Exchange::Arrival& arrival = exchange.arrival(r);
    arrival = {};
    if (!call.moves(r, call.rank)) continue;
    const auto position = static_cast<std::size_t>(host::position_in_stream(call.rank, r, call.ranks));
    arrival = {.from = call.in_offset(call.rank),
               .at = one_block ? 0 : position * block,
               .bytes = block,
               .to = call.out_offset(r)};
  }
  return exchange;
}

void run_block_exchange(HostCall& self) {
  const CollectiveCall& call = self.call();
  host::Exchange exchange = describe_exchange(call);
  if (exchange.longest >= kMinZeroCopyBytes) {
    // A rank that passes no input announces its output. What matters is that it can reach the buffer.
    self.show_input(call.passes_in() ? call.input() : std::span<const std::byte>(call.output()));
    self.begin();
    exchange.in_peers = self.inputs();
  }
  run_exchange(self, exchange);
}

Algorithm run_call(HostCall& self) {
  const CollectiveCall& call = self.call();
  if (call.collective == Collective::all_to_all_v) {
    all_to_all_v_on_host(self);
  } else if (call.ranks == 1) {
    return run_alone(self);
  } else if (call.traits().has_two_shot) {
    return run_reduction(self);
  } else if (call.traits().reduces) {
    run_reduce_scatter(self);
  } else {
    run_block_exchange(self);
  }
  return Algorithm::one_shot;
}

}  // namespace

CollectiveBackend::Outcome HostBackend::run(Group::State& group, const CollectiveCall& call,
                                            ArgumentError error, os::CallDeadline& deadline) const {
  HostCall self(group, call, error, deadline);
  if (error != ArgumentError::none) self.begin();  // throws
  return {.algorithm = run_call(self)};
}

CollectiveBackend::Outcome HostBackend::run_fused(Group::State& group, std::span<const CollectiveCall> calls,
                                                  std::span<const ArgumentError> errors,
                                                  os::CallDeadline& deadline) const {
  return run(group, calls.front(), errors.front(), deadline);
}

void HostBackend::run_transfers(Group::State& group, std::span<const CollectiveCall> sorted,
                                const char* phase, os::CallDeadline& deadline) const {
  transfer_on_host(group, sorted, phase, deadline);
}

}  // namespace onehop
