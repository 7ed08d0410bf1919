// SPDX-License-Identifier: Apache-2.0
#include "collective/run.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/log.h"
#include "collective/backend.h"
#include "collective/fusion.h"
#include "collective/group_call.h"
#include "collective/host_call.h"
#include "collective/transfers.h"
#include "os/fault_point.h"

namespace onehop {
namespace {

Duration timeout_of(const Group::State& group, const CollectiveCall& call) {
  return call.options.timeout.value_or(group.options().timeout);
}

/// The larger of a rank's input and output, as benchmarks count; for all_to_all_v the input.
std::size_t bytes_to_log(const CollectiveCall& call) {
  if (call.traits().in != Amount::counted_by_rank) return std::max(call.input().size(), call.output().size());
  const auto& counts = call.in_blocks.counts;
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0}) * call.element_bytes();
}

/// An element of the host's memory, right-aligned. 0 for types that there are not: such a call is refused.
std::uint64_t element_at(const void* memory, DType type) {
  std::uint64_t bits = 0;  // little-endian, so that what lies first is rightmost
  if (static_cast<int>(type) < kDTypeCount) std::memcpy(&bits, memory, size_of(type));
  return bits;
}

/// ONEHOP_LOG=debug: logs a line for every call that was made, with the algorithm used.
void log_call(const Group::State& group, const CollectiveCall& call,
              const CollectiveBackend::Outcome& outcome) {
  if (!log::enabled(log::Level::debug)) [[likely]]
    return;
  log::debug("rank {} of '{}': {}: {}{}{}, {} bytes", group.rank().value, group.options().name,
             describe(record_of(call)), to_string(outcome.algorithm), outcome.detail.empty() ? "" : " by ",
             outcome.detail, bytes_to_log(call));
}

void run_fused(Group::State& group, std::span<const CollectiveCall> calls) {
  const CollectiveBackend& backend = CollectiveBackend::of(group);
  std::vector<ArgumentError> errors;
  for (const CollectiveCall& call : calls) errors.push_back(find_argument_error(call));
  if (std::ranges::all_of(errors, [](ArgumentError each) { return each == ArgumentError::none; })) {
    if (const auto conflict = find_conflict(calls)) errors[*conflict] = ArgumentError::conflict;
  }
  if (group.checks_calls()) {
    // Ranks compare every call, and may find that even their lists differ.
    for (std::size_t i = 0; i < calls.size(); ++i) (void)run_now(group, calls[i], errors[i]);
    return;
  }
  Duration timeout{0};  // the longest one, because the calls wait together
  for (const CollectiveCall& call : calls) timeout = std::max(timeout, timeout_of(group, call));
  group.call(calls.front().traits().name, timeout, [&](os::CallDeadline& deadline) {
    const CollectiveBackend::Outcome outcome = backend.run_fused(group, calls, errors, deadline);
    for (const CollectiveCall& each : calls) {
      group.count_usage(outcome.algorithm);
      log_call(group, each, outcome);
    }
  });
}

}  // namespace

Algorithm run(Group& group, const Call& given) {
  if (given.collective == Collective::barrier) {
    // It has no other field.
    run_barrier(group.state(),
                {{.options = {.timeout = given.options.timeout}}, group.rank().value, group.size()});
    return Algorithm::none;
  }
  CollectiveCall call{given, group.rank().value, group.size()};
  if (given.options.own_factor != nullptr &&
      CollectiveBackend::of(group.state()).reads_own_factor(given.options)) {
    call.own_factor = element_at(given.options.own_factor, given.type);
  }
  if (is_transfer(call)) return run_transfer(group, call);
  if (auto* const queue = GroupCall::Queue::open()) return queue->add(group, call);
  return run_now(group.state(), call, find_argument_error(call));
}

Algorithm run_now(Group::State& group, const CollectiveCall& call, ArgumentError error) {
  return group.call(call.traits().name, timeout_of(group, call), [&](os::CallDeadline& deadline) {
    const CollectiveBackend::Outcome outcome = CollectiveBackend::of(group).run(group, call, error, deadline);
    group.count_usage(outcome.algorithm);
    log_call(group, call, outcome);
    return outcome.algorithm;
  });
}

void run_barrier(Group::State& group, const CollectiveCall& call) {
  const char* const phase = call.traits().name;
  group.call(phase, timeout_of(group, call), [&](os::CallDeadline& deadline) {
    os::fault_point(phase, group.rank().value);
    const ArgumentError error =
        call.refusal != nullptr ? ArgumentError::refused_by_caller : find_argument_error(call);
    agree_on_call(group, record_of(call, error), deadline, phase, call.refusal);
    log::debug("rank {} of '{}': barrier()", group.rank().value, group.options().name);
  });
}

void Group::barrier() {
  barrier(timeout());
}

void Group::barrier(Duration timeout) {
  (void)run(*this, {.options = {.timeout = timeout}});
}

std::size_t run_first(Group::State& group, std::span<const CollectiveCall> calls) {
  const std::size_t fused = count_fused(group, calls);
  if (fused == 1) {
    (void)run_now(group, calls.front(), find_argument_error(calls.front()));
  } else {
    run_fused(group, calls.first(fused));
  }
  return fused;
}

}  // namespace onehop
