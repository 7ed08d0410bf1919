// SPDX-License-Identifier: Apache-2.0
#include "collective/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/algorithm.h"
#include "backend/cuda/algorithms/point_to_point/channel_launch.h"
#include "backend/cuda/algorithms/point_to_point/factors.h"
#include "backend/cuda/algorithms/push/push_algorithms.h"
#include "base/check.h"
#include "collective/host_backend.h"
#include "collective/host_call.h"
#include "collective/transfers.h"
#include "os/fault_point.h"

namespace onehop {
namespace {

Error rejection(const Group::State& group, const CollectiveCall& call, ArgumentError error) {
  return {call.refusal != nullptr ? call.refusal->code() : ErrorCode::invalid_argument,
          fmt::format("{} of rank {} was rejected: {}", describe(record_of(call, error)), group.rank().value,
                      explain(call, error, group.options().device)),
          group.rank()};
}

/// For all_to_all_v, where calls are compared: throws, identically on all ranks, if a rank does not send what
/// another expects.
void compare_counts(const Group::State& group, const CollectiveCall& call, const Deadline& deadline) {
  std::vector<std::uint64_t> own(call.in_blocks.counts.begin(), call.in_blocks.counts.end());
  own.insert(own.end(), call.out_blocks.counts.begin(), call.out_blocks.counts.end());
  const std::vector<std::string> all = group.mesh().all_gather(
      {reinterpret_cast<const char*>(own.data()), own.size() * sizeof own[0]}, deadline, "all_to_all_v");
  const auto count = [&](int rank, int index) {
    const std::string& raw = all[static_cast<std::size_t>(rank)];
    std::uint64_t value = 0;
    if (raw.size() != own.size() * sizeof value)
      fail(ErrorCode::protocol, "all_to_all_v: a rank sent {} bytes", raw.size());
    std::memcpy(&value, raw.data() + static_cast<std::size_t>(index) * sizeof value, sizeof value);
    return value;
  };
  for (int s = 0; s < call.ranks; ++s) {
    for (int r = 0; r < call.ranks; ++r)
      require_same_count(Rank{s}, count(s, r), Rank{r}, count(r, call.ranks + s));
  }
}

/// Throws unless this rank's arguments are valid and, where calls are compared, all ranks make the same call.
/// The other ranks learn what this one refuses (DeviceProgress).
void begin(Group::State& group, const CollectiveCall& call, ArgumentError error, os::CallDeadline& deadline) {
  const char* const phase = call.traits().name;
  if (error == ArgumentError::none) error = find_memory_error(call, group.options().device);
  if (group.checks_calls()) {
    try {
      agree_on_call(group, record_of(call, error), deadline, phase, call.refusal);
    } catch (const Error& heard) {
      // The refusing rank knows more of the reason than it tells the others.
      if (error == ArgumentError::none || heard.code() != ErrorCode::invalid_argument ||
          heard.origin() != group.rank()) {
        throw;
      }
      throw rejection(group, call, error);
    }
  }
  DeviceProgress& progress = DeviceRank::of(group).progress();
  if (error != ArgumentError::none)
    progress.refuse(rejection(group, call, error), group.mesh(), deadline, phase);
  progress.begin(record_of(call), group.mesh(), deadline, phase);
  os::fault_point(phase, group.rank().value);
  if (call.collective == Collective::all_to_all_v && (group.checks_calls() || call.ranks == 1))
    compare_counts(group, call, deadline.arm());
}

/// The output of a call that promises that it is symmetric (CallOptions::symmetric). If this rank's output is
/// not, the group fails.
cuda::SymmetricOutput find_symmetric_output(Group::State& group, const CollectiveCall& call) {
  const char* const phase = call.traits().name;
  // The copies run even if the preceding wait for the peers failed. So this rank first checks what the others
  // have reported. Once they have thrown, a rank that was stopped begins no call that writes to their memory.
  group.mesh().check(phase);
  // All ranks pass their output, even ranks that receive nothing.
  const bool many = call.traits().out == Amount::block_per_rank;
  const std::size_t bytes = call.block_bytes() * static_cast<std::size_t>(many ? call.ranks : 1);
  const auto [buffer, number] = group.find_buffer(call.out, bytes);
  // The call has begun: the other ranks may be queueing it.
  if (buffer == nullptr) group.fail_call(rejection(group, call, ArgumentError::not_symmetric), phase);
  const auto offset =
      static_cast<std::size_t>(call.out_at() - buffer->data[static_cast<std::size_t>(group.rank().value)]);
  // No buffer has 2^48 bytes.
  cuda::SymmetricOutput output{.window = (number % 0xffff + 1) << 48 | offset};
  for (std::size_t r = 0; r < buffer->data.size(); ++r) output.outs[r] = buffer->data[r] + offset;
  return output;
}

/// What this rank reads or writes, whichever is more.
std::size_t bytes_of(std::span<const CollectiveCall> calls) {
  std::size_t in = 0;
  std::size_t out = 0;
  for (const CollectiveCall& call : calls) {
    in += call.input().size();
    out += call.output().size();
  }
  return std::max(in, out);
}

}  // namespace

const CollectiveBackend& CollectiveBackend::of(const Group::State& group) {
  static const auto& host = *new HostBackend;
  static const auto& cuda = *new CudaBackend;
  if (group.local().backend() == Backend::host) return host;
  return cuda;
}

CollectiveBackend::Outcome CudaBackend::run(Group::State& group, const CollectiveCall& call,
                                            ArgumentError error, os::CallDeadline& deadline) const {
  begin(group, call, error, deadline);
  const Selector::Selection& selected =
      group.selector().select(call, call.block_bytes(), call.options.algorithm);
  const cuda::DeviceAlgorithm& algorithm = **std::ranges::find(cuda::device_algorithms(), selected.algorithm);
  if (call.has_data()) {
    std::optional<cuda::SymmetricOutput> output;
    if (algorithm.buffers == Buffers::symmetric) output = find_symmetric_output(group, call);
    Communicator& communicator = DeviceRank::of(group).communicator();
    Communicator::Call queued(communicator, call.stream, deadline.timeout(), bytes_of({&call, 1}));
    std::optional<CollectiveCall> weighted;
    if (call.options.own_factor != nullptr) weighted = cuda::exchange_factors(communicator, call);
    algorithm.run(communicator, weighted ? *weighted : call,
                  {.blocks = selected.choice.blocks, .threads = selected.choice.threads},
                  output ? &*output : nullptr);
    queued.end();
  }
  return {call.options.algorithm.value_or(algorithm.kind), algorithm.name};
}

CollectiveBackend::Outcome CudaBackend::run_fused(Group::State& group, std::span<const CollectiveCall> calls,
                                                  std::span<const ArgumentError> errors,
                                                  os::CallDeadline& deadline) const {
  for (std::size_t i = 0; i < calls.size(); ++i) begin(group, calls[i], errors[i], deadline);
  Communicator& communicator = DeviceRank::of(group).communicator();
  Communicator::Call queued(communicator, calls.front().stream, deadline.timeout(), bytes_of(calls));
  cuda::run_fused(communicator, calls);
  queued.end();
  return {Algorithm::one_shot, "ll_one_shot, with others in one launch"};
}

void CudaBackend::run_transfers(Group::State& group, std::span<const CollectiveCall> sorted,
                                const char* /*phase*/, os::CallDeadline& deadline) const {
  Communicator& communicator = DeviceRank::of(group).communicator();
  Communicator::Call queued(communicator, sorted.front().stream, deadline.timeout(), bytes_of(sorted));
  for (const Transfers& round : to_rounds(sorted))
    cuda::exchange(communicator, round, DeviceFault::phase_of(Collective::send));
  queued.end();
}

}  // namespace onehop
