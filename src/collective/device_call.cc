// SPDX-License-Identifier: Apache-2.0
#include "collective/device_call.h"

#include "base/check.h"
#include "collective/first_step.h"
#include "os/fault_point.h"

namespace onehop {
namespace {

Error rejection(const Group::State& group, const Arguments& call, CallDefect defect) {
  return {ErrorCode::invalid_argument,
          fmt::format("{} of rank {} was rejected: {}", describe(describe_call(call, defect)),
                      group.rank().value, explain(call, defect, group.options().device)),
          group.rank()};
}

}  // namespace

void begin_device_call(Group::State& group, const Arguments& call, CallDefect defect,
                       os::CallDeadline& deadline) {
  const char* const phase = to_text(call.kind);
  if (defect == CallDefect::none) defect = find_memory_defect(call, group.options().device);
  if (group.checks_calls()) {
    try {
      first_step(group, describe_call(call, defect), deadline, phase);
    } catch (const Error& error) {
      // The rank that refuses knows more of why than it tells the others.
      if (defect == CallDefect::none || error.code() != ErrorCode::invalid_argument ||
          error.origin() != group.rank()) {
        throw;
      }
      throw rejection(group, call, defect);
    }
  }
  DeviceProgress& progress = *group.progress();
  if (defect != CallDefect::none)
    progress.refuse(rejection(group, call, defect), group.mesh(), deadline, phase);
  progress.begin(group.mesh(), deadline, phase);
  os::fault_point(phase, group.rank().value);
}

SymmetricOutput find_symmetric_output(Group::State& group, const Arguments& call, std::size_t bytes) {
  // Copies run even if the wait for the peers before them failed. So this rank reads what the others have
  // reported: once they have thrown, a rank that was stopped begins no call that writes to their memory.
  group.mesh().check(to_text(call.kind));
  auto [buffer, number] = group.find_buffer(call.out, bytes);
  // The call has begun: the other ranks may be queueing it.
  if (buffer == nullptr)
    group.fail_call(rejection(group, call, CallDefect::not_symmetric), to_text(call.kind));
  SymmetricOutput output{.buffer = std::move(buffer)};
  output.offset = static_cast<std::size_t>(call.out - output.on(group.rank().value));
  // No buffer has 2^48 bytes.
  output.place = (number % 0xffff + 1) << 48 | output.offset;
  return output;
}

}  // namespace onehop
