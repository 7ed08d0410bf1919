#include "collective/device_call.h"

#include "base/check.h"
#include "collective/first_step.h"
#include "os/fault_point.h"

namespace onehop {
namespace {

/// Defects that depend on what this rank alone passes. The others are the same on all ranks of a correct
/// program, and found by all alike.
bool is_local(CallDefect defect, CallKind kind) {
  switch (defect) {
    case CallDefect::null_input:
    case CallDefect::null_output:
    case CallDefect::misaligned:
    case CallDefect::overlap:
    case CallDefect::in_place:
    case CallDefect::not_one_per_rank:
    case CallDefect::not_symmetric:
    case CallDefect::conflict:
      return true;
    case CallDefect::too_large:
      return kind == CallKind::all_to_all_v;
    default:
      return false;
  }
}

[[noreturn]] void reject(Group::State& group, const Arguments& call, CallDefect defect) {
  const host::Call own = describe_call(call, defect);
  const char* const phase = to_text(call.kind);
  const Error error(
      ErrorCode::invalid_argument,
      fmt::format("{} of rank {} was rejected: {}", describe(own), group.rank().value, to_text(defect)),
      group.rank());
  // The other ranks wait in their kernels for one that will not come.
  if (is_local(defect, call.kind)) group.fail_call(error, phase);
  throw error;
}

}  // namespace

void begin_device_call(Group::State& group, const Arguments& call, CallDefect defect) {
  const char* const phase = to_text(call.kind);
  if (group.checks_calls()) {
    os::CallDeadline deadline(call.options.timeout.value_or(group.options().timeout));
    first_step(group, describe_call(call, defect), deadline, phase);
  }
  if (defect != CallDefect::none) reject(group, call, defect);
  os::fault_point(phase, group.rank().value);
}

SymmetricOutput find_symmetric_output(Group::State& group, const Arguments& call, std::size_t bytes) {
  auto [buffer, number] = group.find_buffer(call.out, bytes);
  if (buffer == nullptr) reject(group, call, CallDefect::not_symmetric);
  SymmetricOutput output{.buffer = std::move(buffer)};
  output.offset = static_cast<std::size_t>(call.out - output.on(group.rank().value));
  // No buffer has 2^48 bytes.
  output.place = (number % 0xffff + 1) << 48 | output.offset;
  return output;
}

}  // namespace onehop
