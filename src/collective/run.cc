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

/// Counts a call that was made. ONEHOP_LOG=debug: logs a line with the algorithm used.
void record(Group::State& group, const CollectiveCall& call, const CollectiveBackend::Outcome& outcome) {
  group.count_usage(outcome.algorithm);
  if (!log::enabled(log::Level::debug)) [[likely]]
    return;
  log::debug("rank {} of '{}': {}: {}{}{}, {} bytes", group.rank().value, group.options().name,
             describe(record_of(call)), to_string(outcome.algorithm), outcome.detail.empty() ? "" : " by ",
             outcome.detail, bytes_to_log(call));
}

}  // namespace

Algorithm run(Group& group, const Call& given) {
  // Without [[unlikely]] the compiler takes the end for rare, and does not inline Group::State::call there.
  if (given.collective == Collective::barrier) [[unlikely]] {
    // It has no other field.
    run_barrier(group.state(),
                {{.options = {.timeout = given.options.timeout}}, group.rank().value, group.size()});
    return Algorithm::none;
  }
  CollectiveCall call{given, group.rank().value, group.size()};
  if (given.options.own_factor != nullptr &&
      CollectiveBackend::of(group.state()).reads_own_factor(given.options)) [[unlikely]] {
    call.own_factor = element_at(given.options.own_factor, given.type);
  }
  if (is_transfer(call)) [[unlikely]]
    return run_transfer(group, call);
  if (auto* const queue = GroupCall::Queue::open()) [[unlikely]]
    return queue->add(group, call);
  Group::State& state = group.state();
  const ArgumentError error = find_argument_error(call);
  return state.call(call.traits().name, timeout_of(state, call), [&](os::CallDeadline& deadline) {
    const CollectiveBackend::Outcome outcome = CollectiveBackend::of(state).run(state, call, error, deadline);
    record(state, call, outcome);
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
  calls = calls.first(count_fused(group, calls));
  if (calls.size() == 1) {
    const ArgumentError error = find_argument_error(calls.front());
    run_now(group, calls, {&error, 1});
    return 1;
  }
  std::vector<ArgumentError> errors;
  for (const CollectiveCall& call : calls) errors.push_back(find_argument_error(call));
  if (std::ranges::count(errors, ArgumentError::none) == std::ssize(errors)) {
    if (const auto conflict = find_conflict(calls)) errors[*conflict] = ArgumentError::conflict;
  }
  // Ranks that compare every call may find that even their lists differ.
  const std::size_t at_once = group.checks_calls() ? 1 : calls.size();
  for (std::size_t i = 0; i < calls.size(); i += at_once)
    run_now(group, calls.subspan(i, at_once), std::span(errors).subspan(i, at_once));
  return calls.size();
}

void run_now(Group::State& group, std::span<const CollectiveCall> calls,
             std::span<const ArgumentError> errors) {
  Duration timeout = timeout_of(group, calls.front());  // the longest one, because the calls wait together
  for (const CollectiveCall& call : calls) timeout = std::max(timeout, timeout_of(group, call));
  group.call(calls.front().traits().name, timeout, [&](os::CallDeadline& deadline) {
    const CollectiveBackend& backend = CollectiveBackend::of(group);
    const CollectiveBackend::Outcome outcome =
        calls.size() == 1 ? backend.run(group, calls.front(), errors.front(), deadline)
                          : backend.run_fused(group, calls, errors, deadline);
    for (const CollectiveCall& call : calls) record(group, call, outcome);
  });
}

}  // namespace onehop
