// SPDX-License-Identifier: Apache-2.0
#include "collective/host_backend.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

#include "backend/host/all_reduce.h"
#include "backend/host/chunk.h"
#include "backend/host/copy.h"
#include "backend/host/reduce.h"
#include "collective/host_call.h"
#include "collective/transfers.h"

namespace onehop {
namespace {

/// For a group of one rank, where there is no other rank to wait for.
Algorithm run_alone(HostCall& self) {
  const CollectiveCall& call = self.call();
  self.step();
  const Algorithm algorithm = call.options.algorithm.value_or(Algorithm::one_shot);
  if (call.count == 0) return algorithm;
  if (call.traits().reduces && call.op == ReduceOp::premul_sum) {
    const void* const in = call.in_at();
    host::reduce_function(call.type, call.op)(call.out_at(), &in, 1, call.count, call.scale());
  } else {
    host::copy(call.out_at(), call.in_at(), call.block_bytes());
  }
  return algorithm;
}

host::Reduction describe_reduction(const CollectiveCall& call) {
  return {.root = call.traits().only_root_gets_out ? call.root.value : host::Reduction::kAll,
          .in = call.in_at(),
          .out = call.out_at(),
          .bytes = call.block_bytes(),
          .type = call.type,
          .op = call.op,
          .scale = call.scale()};
}

/// Performs the first step, in which the ranks learn where the input lies on every rank. Returns self.inputs().
host::PeerData begin_with(HostCall& self, std::span<const std::byte> input) {
  self.show_input(input);
  self.begin();
  return self.inputs();
}

host::PeerData if_mapped(host::PeerData data) {
  return data.mapped() ? data : host::PeerData{};
}

/// Runs all_reduce and reduce.
Algorithm run_reduction(HostCall& self) {
  const CollectiveCall& call = self.call();
  const bool to_all = call.collective == Collective::all_reduce;
  host::Reduction reduction = describe_reduction(call);
  const Selector::Selection& selected =
      self.group().selector().select(call, reduction.bytes, call.options.algorithm);
  const Algorithm algorithm = selected.algorithm->kind;
  reduction.chunk =
      host::chunk_of(algorithm, selected.choice.chunk, self.step_barrier().staging_bytes(), call.ranks);

  // Small calls are announced along with their first data. For others the ranks first learn where the data of
  // all ranks lies.
  if (algorithm == Algorithm::two_shot && self.shows(reduction.bytes)) {
    if (to_all) self.show_output(call.output());
    reduction.in_peers = if_mapped(begin_with(self, call.input()));
    if (to_all) reduction.out_peers = if_mapped(self.outputs());
  } else if (reduction.bytes == 0) {
    self.begin();
  }
  if (reduction.bytes == 0) return algorithm;

  const auto step = [&] { self.step(); };
  if (algorithm == Algorithm::one_shot) {
    host::one_shot(self.step_barrier(), reduction, step);
  } else {
    host::two_shot(self.step_barrier(), reduction, step);
  }
  if (reduction.in_peers || reduction.out_peers) self.require_no_failure();
  return algorithm;
}

void run_reduce_scatter(HostCall& self) {
  const CollectiveCall& call = self.call();
  host::Reduction reduction = describe_reduction(call);
  if (self.shows(static_cast<std::size_t>(call.ranks - 1) * reduction.bytes))
    reduction.in_peers = if_mapped(begin_with(self, call.input()));
  host::reduce_scatter(self.step_barrier(), reduction, [&] { self.step(); });
  if (reduction.in_peers) self.require_no_failure();
}

/// For collectives that move blocks of one size.
host::Exchange describe_exchange(const CollectiveCall& call) {
  const std::size_t block = call.block_bytes();
  // A rank has either one block, which goes to every rank that it sends to, or a separate block for each.
  const bool one_block = call.traits().in == Amount::block;
  host::Exchange exchange;
  exchange.in = call.in_at();
  exchange.out = call.out_at();
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
  if (self.shows(exchange.longest)) {
    // A rank that passes no input announces its output. What matters is that it can reach the buffer.
    exchange.in_peers = begin_with(self, call.passes_in() ? call.input() : call.output());
  }
  run_exchange(self, exchange);
}

/// The call with its input times this rank's own factor. It sums, and multiplies by 1.
CollectiveCall with_products(Group::State& group, const CollectiveCall& call) {
  const std::span<const std::byte> input = call.input();
  const void* const in = input.data();
  std::byte* const products = HostRank::of(group).made_input(input.size());
  host::reduce_function(call.type, ReduceOp::premul_sum)(
      products, &in, 1, input.size() / call.element_bytes(), product_with(call.type, *call.own_factor));
  CollectiveCall made = call;
  made.in = products;
  return made;
}

/// Runs the call and returns what it used.
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
  std::optional<CollectiveCall> weighted;
  if (call.own_factor && error == ArgumentError::none && call.count != 0)
    weighted = with_products(group, call);
  HostCall self(group, weighted ? *weighted : call, error, deadline);
  if (error != ArgumentError::none) self.begin();  // throws
  try {
    return {.algorithm = run_call(self)};
  } catch (const host::Unreadable& unreadable) {
    fail_unreadable(group, unreadable, deadline, call.traits().name);
  }
}

void HostBackend::run_transfers(Group::State& group, std::span<const CollectiveCall> sorted,
                                const char* phase, os::CallDeadline& deadline) const {
  transfer_on_host(group, sorted, phase, deadline);
}

}  // namespace onehop
