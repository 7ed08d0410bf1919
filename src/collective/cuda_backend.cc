// SPDX-License-Identifier: Apache-2.0
#include "collective/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "collective/host_backend.h"
#include "collective/host_call.h"
#include "collective/plan.h"
#include "collective/transfers.h"
#include "os/fault_point.h"

namespace onehop {
namespace {

Error rejection(const Group::State& group, const CollectiveCall& call, ArgumentError error) {
  return {ErrorCode::invalid_argument,
          fmt::format("{} of rank {} was rejected: {}", describe(record_of(call, error)), group.rank().value,
                      explain(call, error, group.options().device)),
          group.rank()};
}

/// Throws unless this rank's arguments are valid and, where calls are compared, all ranks make the same call.
/// The other ranks learn what this one refuses (DeviceProgress).
void begin(Group::State& group, const CollectiveCall& call, ArgumentError error, os::CallDeadline& deadline) {
  const char* const phase = call.traits().name;
  if (error == ArgumentError::none) error = find_memory_error(call, group.options().device);
  if (group.checks_calls()) {
    try {
      agree_on_call(group, record_of(call, error), deadline, phase);
    } catch (const Error& heard) {
      // The refusing rank knows more of the reason than it tells the others.
      if (error == ArgumentError::none || heard.code() != ErrorCode::invalid_argument ||
          heard.origin() != group.rank()) {
        throw;
      }
      throw rejection(group, call, error);
    }
  }
  DeviceProgress& progress = *group.progress();
  if (error != ArgumentError::none)
    progress.refuse(rejection(group, call, error), group.mesh(), deadline, phase);
  progress.begin(group.mesh(), deadline, phase);
  os::fault_point(phase, group.rank().value);
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

/// The output of a call that promises that it is symmetric (CallOptions::symmetric). If this rank's output is
/// not, the group fails.
SymmetricOutput find_symmetric_output(Group::State& group, const CollectiveCall& call) {
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
      static_cast<std::size_t>(call.out - buffer->data[static_cast<std::size_t>(group.rank().value)]);
  // No buffer has 2^48 bytes.
  SymmetricOutput output{.window = (number % 0xffff + 1) << 48 | offset};
  for (std::size_t r = 0; r < buffer->data.size(); ++r) output.outs[r] = buffer->data[r] + offset;
  return output;
}

/// The inputs of a reduction's plan.
PlanRequest request_for(Group::State& group, const CollectiveCall& call) {
  const bool legacy = call.collective == Collective::all_reduce && !call.algorithm &&
                      group.options().policy == AlgorithmPolicy::legacy;
  return {.ranks = call.ranks,
          .bytes = call.block_bytes(),
          .type = call.type,
          .op = call.op,
          .policy = legacy ? AlgorithmPolicy::legacy : AlgorithmPolicy::tuned,
          .forced = call.algorithm,
          .staging_bytes = group.staging_bytes(),
          .copy_bytes = group.copy_bytes(),
          .resident_blocks = group.resident_blocks(),
          .tuning = call.collective == Collective::all_reduce ? &group.tuning().table : nullptr};
}

/// Queues the part of an all-reduce that copy engines write directly into symmetric outputs. Returns its
/// size, and the place that ranks must name for their outputs when they queue the rest.
struct DirectPart {
  std::size_t bytes = 0;
  SymmetricOutput rest{};
};
DirectPart queue_direct_part(Group::State& group, const CollectiveCall& call, const PlanRequest& request) {
  if (!call.symmetric) return {};
  const std::optional<DevicePlan> plan = plan_direct_all_reduce(request);
  if (!plan) return {};
  const SymmetricOutput outputs = find_symmetric_output(group, call);
  const auto misaligned = [](const std::byte* out) {
    return reinterpret_cast<std::uintptr_t>(out) % 16 != 0;
  };
  // Mappings are page-aligned, so all ranks see the same alignment and make the same choice.
  if (std::ranges::any_of(outputs.outs, misaligned)) return {};
  // In place, peers would overwrite data that is still to be sent. Ranks that are not in place expect this
  // rank to name the place of the output itself, and so detect the difference.
  if (call.in == call.out) return {.rest = {.window = ~outputs.window}};
  group.device()->run(call.first(plan->launch_bytes), *plan, outputs);
  return {.bytes = plan->launch_bytes};
}

CollectiveBackend::Outcome run_all_reduce(Group::State& group, const CollectiveCall& call) {
  PlanRequest request = request_for(group, call);
  const DirectPart direct = queue_direct_part(group, call, request);
  request.bytes -= direct.bytes;
  const DevicePlan plan = plan_device_all_reduce(request);
  if (plan.algorithm != Algorithm::none && request.bytes != 0)
    group.device()->run(direct.bytes == 0 ? call : call.from(direct.bytes), plan, direct.rest);
  if (direct.bytes == 0) return {plan.algorithm, to_string(plan.protocol)};
  return {Algorithm::two_shot, to_string(DeviceProtocol::copies)};
}

DevicePlan plan_call(Group::State& group, const CollectiveCall& call) {
  if (call.collective == Collective::reduce) return plan_device_reduce(request_for(group, call));
  if (call.traits().reduces) return plan_device_reduce_scatter(request_for(group, call));
  return plan_device_exchange(call);
}

/// For a group of one rank: copies `in` to `out`, and multiplies for premul_sum.
CollectiveBackend::Outcome run_alone(Group::State& group, const CollectiveCall& call) {
  const Algorithm algorithm = plan_alone(call, group.options().policy, group.staging_bytes());
  if (algorithm == Algorithm::none || call.count == 0) return {algorithm};
  if (!call.traits().reduces || call.op != ReduceOp::premul_sum) {
    group.device()->transfer(transfers_of(call), call.traits().phase, call.stream);
    return {algorithm};
  }
  CollectiveCall scaling = call;  // uses the kernel that reduces over all ranks
  scaling.collective = Collective::all_reduce;
  group.device()->run(scaling, plan_scaling(call, group.resident_blocks()), {});
  return {algorithm};
}

}  // namespace

const CollectiveBackend& CollectiveBackend::of(const Group::State& group) {
  static const auto& host = *new HostBackend;
  static const auto& cuda = *new CudaBackend;
  if (group.device() == nullptr) return host;
  return cuda;
}

CollectiveBackend::Outcome CudaBackend::run(Group::State& group, const CollectiveCall& call,
                                            ArgumentError error, os::CallDeadline& deadline) const {
  begin(group, call, error, deadline);
  group.device()->begin_call(deadline.timeout());
  if (call.collective == Collective::all_to_all_v) {
    if (group.checks_calls() || call.ranks == 1) compare_counts(group, call, deadline.arm());
    group.device()->transfer(transfers_of(call), call.traits().phase, call.stream);
    return {};
  }
  if (call.ranks == 1) return run_alone(group, call);
  if (call.collective == Collective::all_reduce) return run_all_reduce(group, call);
  const DevicePlan plan = plan_call(group, call);
  if (call.count != 0) {
    const bool direct = plan.protocol == DeviceProtocol::direct;
    group.device()->run(call, plan, direct ? find_symmetric_output(group, call) : SymmetricOutput{});
  }
  return {plan.algorithm};
}

std::size_t CudaBackend::count_fused(Group::State& group, std::span<const CollectiveCall> calls) const {
  std::vector<std::size_t> bytes;
  for (const CollectiveCall& call : calls) {
    // A call that is too large runs separately, and is rejected there.
    bytes.push_back(std::min(call.count, max_elements(call.type)) * call.element_bytes());
  }
  return plan_device_list(request_for(group, calls.front()), bytes).calls;
}

CollectiveBackend::Outcome CudaBackend::run_fused(Group::State& group, std::span<const CollectiveCall> calls,
                                                  std::span<const ArgumentError> errors,
                                                  os::CallDeadline& deadline) const {
  for (std::size_t i = 0; i < calls.size(); ++i) begin(group, calls[i], errors[i], deadline);
  group.device()->begin_call(deadline.timeout());
  std::vector<std::size_t> bytes;
  for (const CollectiveCall& call : calls) bytes.push_back(call.block_bytes());
  const ListPlan plan = plan_device_list(request_for(group, calls.front()), bytes);
  group.device()->run_fused(calls, plan.shape);
  return {Algorithm::one_shot, "packets, with others in one launch"};
}

void CudaBackend::run_transfers(Group::State& group, std::span<const CollectiveCall> sorted,
                                const char* /*phase*/, os::CallDeadline& deadline) const {
  group.device()->begin_call(deadline.timeout());
  for (const Transfers& round : to_rounds(sorted))
    group.device()->transfer(round, DeviceFault::send_recv, sorted.front().stream);
}

}  // namespace onehop
