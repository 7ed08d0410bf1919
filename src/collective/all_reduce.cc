// SPDX-License-Identifier: Apache-2.0
#include "collective/all_reduce.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "collective/alone.h"
#include "collective/device_call.h"
#include "collective/group_call.h"
#include "collective/host_call.h"
#include "collective/plan.h"
#include "kernel/host/all_reduce.h"

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

Arguments arguments_of(const AllReduceCall& call) {
  return {.kind = CallKind::all_reduce,
          .in = call.in,
          .out = call.out,
          .count = call.count,
          .type = call.type,
          .op = call.op,
          .stream = call.stream,
          .options = call.options};
}

/// What the plan of a call on a GPU depends on, but for its bytes.
PlanRequest device_request(Group::State& group, const AllReduceCall& call) {
  const std::optional<Algorithm> forced = call.options.algorithm;
  return {.ranks = group.size(),
          .type = call.type,
          .op = call.op,
          .policy = forced ? AlgorithmPolicy::tuned : group.options().policy,
          .forced = forced,
          .staging_bytes = group.staging_bytes(),
          .copy_bytes = group.copy_bytes(),
          .resident_blocks = group.resident_blocks(),
          .tuning = &group.tuning().table};
}

/// The first `bytes` of a call, as planned.
DeviceAllReduce describe_device_all_reduce(const Group::State& group, const AllReduceCall& call,
                                           std::size_t bytes, const DevicePlan& plan) {
  return {.in = call.in,
          .out = call.out,
          .bytes = bytes,
          .type = call.type,
          .op = call.op,
          .scale = arguments_of(call).scale(group.size()),
          .protocol = plan.protocol,
          .launch_bytes = plan.launch_bytes,
          .chunk = plan.chunk,
          .shape = plan.shape};
}

/// Queues what copy engines bring straight to the output of a call that promises symmetric memory, and takes
/// it off `call`. Returns the place that goes with what is left (DeviceAllReduce::place).
std::uint64_t queue_direct_part(Group::State& group, const PlanRequest& request, AllReduceCall& call) {
  if (!call.options.symmetric) return 0;
  const std::optional<DevicePlan> plan = plan_direct_all_reduce(request);
  if (!plan) return 0;
  const SymmetricOutput output = find_symmetric_output(group, arguments_of(call), request.bytes);
  for (int r = 0; r < group.size(); ++r) {
    // Memory is mapped by whole pages, so every rank sees everyone's alignment, and all choose alike.
    if (reinterpret_cast<std::uintptr_t>(output.on(r)) % 16 != 0) return 0;
  }
  // In place peers would write over what is still to be sent. Those that are not in place expect this rank to
  // be at the place itself, and so find out.
  if (call.in == call.out) return ~output.place;
  DeviceAllReduce part = describe_device_all_reduce(group, call, plan->launch_bytes, *plan);
  part.place = output.place;
  part.direct = true;
  for (int r = 0; r < group.size(); ++r) part.outs[static_cast<std::size_t>(r)] = output.on(r);
  group.device()->all_reduce(part, call.stream);
  call.in += plan->launch_bytes;
  call.out += plan->launch_bytes;
  call.count -= plan->launch_bytes / size_of(call.type);
  return 0;
}

/// Queues one call on this rank's GPU.
Algorithm device_all_reduce(Group::State& group, AllReduceCall call, std::string_view& how) {
  const std::size_t count = call.count;
  PlanRequest request = device_request(group, call);
  request.bytes = count * size_of(call.type);
  const std::uint64_t place = queue_direct_part(group, request, call);
  request.bytes = call.count * size_of(call.type);
  const DevicePlan plan = plan_device_all_reduce(request);
  how = call.count != count ? to_string(DeviceProtocol::copies) : to_string(plan.protocol);
  if (plan.algorithm != Algorithm::none && call.count != 0) {
    DeviceAllReduce rest = describe_device_all_reduce(group, call, request.bytes, plan);
    rest.place = place;
    group.device()->all_reduce(rest, call.stream);
  }
  return call.count == count ? plan.algorithm : Algorithm::two_shot;
}

Algorithm make_one(Group::State& group, const AllReduceCall& call, CallDefect defect) {
  const Arguments arguments = arguments_of(call);
  if (group.size() == 1) return make_alone(group, arguments, defect, call.stream);
  if (group.device() == nullptr) return make_host_call(group, arguments, defect, host_all_reduce);
  std::string_view how;
  return make_device_call(
      group, arguments, defect, [&] { return device_all_reduce(group, call, how); }, how);
}
Algorithm make_one(Group::State& group, const AllReduceCall& call) {
  return make_one(group, call, find_defect(arguments_of(call), group.size()));
}

/// Calls that go in one launch. What is wrong with any of them is found before it.
void make_list(Group::State& group, std::span<const AllReduceCall> calls, const ListPlan& plan) {
  std::vector<CallDefect> defects;
  for (const AllReduceCall& call : calls) {
    defects.push_back(find_defect(arguments_of(call), group.size()));
  }
  if (std::all_of(defects.begin(), defects.end(), [](CallDefect each) { return each == CallDefect::none; })) {
    if (const auto conflict = find_conflict(calls)) defects[*conflict] = CallDefect::conflict;
  }
  if (group.checks_calls()) {
    // Ranks meet for every call, and may find out that not even their lists are the same.
    for (std::size_t i = 0; i < calls.size(); ++i) (void)make_one(group, calls[i], defects[i]);
    return;
  }
  const AllReduceCall& first = calls.front();
  DeviceAllReduceList list{.messages = {},
                           .type = first.type,
                           .op = first.op,
                           .scale = arguments_of(first).scale(group.size()),
                           .shape = plan.shape};
  for (const AllReduceCall& call : calls) {
    if (call.count == 0) continue;
    list.messages.push_back({.in = call.in, .out = call.out, .bytes = call.count * size_of(call.type)});
  }
  Duration timeout{0};  // the longest: they wait together
  for (const AllReduceCall& call : calls)
    timeout = std::max(timeout, arguments_of(call).timeout(group.options().timeout));
  group.call(to_text(CallKind::all_reduce), timeout, [&](os::CallDeadline& deadline) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      begin_device_call(group, arguments_of(calls[i]), defects[i], deadline);
    }
    group.device()->begin_call(timeout);
    group.device()->all_reduce_list(list, first.stream);
    for (const AllReduceCall& each : calls) {
      group.count_usage(Algorithm::one_shot);
      log_call(group, arguments_of(each), Algorithm::one_shot, "packets, with others in one launch");
    }
  });
}

/// Calls on a GPU that count_alike() puts together.
void make_alike(Group::State& group, std::span<const AllReduceCall> calls) {
  const AllReduceCall& first = calls.front();
  const PlanRequest request = device_request(group, first);
  std::vector<std::size_t> bytes;
  for (const AllReduceCall& call : calls) {
    // One that is too large goes by itself, and is rejected there.
    bytes.push_back(std::min(call.count, max_elements(call.type)) * size_of(call.type));
  }
  for (std::size_t made = 0; made < calls.size();) {
    const ListPlan plan = plan_device_list(request, std::span(bytes).subspan(made));
    if (plan.calls == 1) {
      (void)make_one(group, calls[made]);
    } else {
      make_list(group, calls.subspan(made, plan.calls), plan);
    }
    made += plan.calls;
  }
}

bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b, std::size_t b_bytes) {
  // As numbers: pointers into different arrays must not be compared.
  const auto first = reinterpret_cast<std::uintptr_t>(a);
  const auto second = reinterpret_cast<std::uintptr_t>(b);
  return first < second + b_bytes && second < first + a_bytes;
}

}  // namespace

std::size_t count_alike(std::span<const AllReduceCall> calls) {
  const AllReduceCall& first = calls.front();
  const auto other = std::find_if(calls.begin(), calls.end(), [&](const AllReduceCall& each) {
    return each.type != first.type || each.op != first.op ||
           each.options.algorithm != first.options.algorithm ||
           std::bit_cast<std::uint64_t>(each.options.factor) !=
               std::bit_cast<std::uint64_t>(first.options.factor) ||
           each.stream.handle != first.stream.handle;
  });
  return static_cast<std::size_t>(other - calls.begin());
}

std::optional<std::size_t> find_conflict(std::span<const AllReduceCall> calls) {
  // At most kMaxListed of them are not empty.
  std::vector<const AllReduceCall*> before;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const AllReduceCall& call = calls[i];
    const std::size_t bytes = call.count * size_of(call.type);
    if (bytes == 0) continue;
    for (const AllReduceCall* const other : before) {
      const std::size_t others = other->count * size_of(other->type);
      if (overlap(call.out, bytes, other->in, others) || overlap(call.out, bytes, other->out, others) ||
          overlap(call.in, bytes, other->out, others)) {
        return i;
      }
    }
    before.push_back(&call);
  }
  return std::nullopt;
}

void make_all_reduces(Group::State& group, std::span<const AllReduceCall> calls) {
  while (!calls.empty()) {
    std::size_t made = 1;
    // What no rank can make has no size.
    const bool go_together = group.device() != nullptr && group.size() > 1;
    if (go_together && find_defect(arguments_of(calls.front()), group.size()) == CallDefect::none) {
      made = count_alike(calls);
      make_alike(group, calls.first(made));
    } else {
      (void)make_one(group, calls.front());
    }
    calls = calls.subspan(made);
  }
}

Algorithm all_reduce(Group& group, const void* in, void* out, std::size_t count, DType type, ReduceOp op,
                     Stream stream, const CallOptions& options) {
  const AllReduceCall call{.in = as_bytes(in),
                           .out = as_bytes(out),
                           .count = count,
                           .type = type,
                           .op = op,
                           .stream = stream,
                           .options = options};
  if (auto* const queue = GroupCall::Queue::open()) return queue->add(group, call);
  return make_one(group.state(), call);
}

}  // namespace onehop
