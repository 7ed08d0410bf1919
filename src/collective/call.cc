// SPDX-License-Identifier: Apache-2.0
#include "collective/call.h"

#include <bit>
#include <iterator>

#include "onehop/group.h"

#include "base/check.h"

namespace onehop {
namespace {

struct Names {
  const char* call;
  const char* data_fault_point;
  DeviceFault::Phase device_phase;
};
// By number; what a peer sends may be any.
constexpr Names kNames[] = {
    {"an unknown call", "", DeviceFault::user},
    {"barrier", "", DeviceFault::barrier},
    {"all_reduce", "all_reduce.data", DeviceFault::all_reduce},
    {"all_gather", "all_gather.data", DeviceFault::all_gather},
    {"reduce_scatter", "reduce_scatter.data", DeviceFault::reduce_scatter},
    {"broadcast", "broadcast.data", DeviceFault::broadcast},
    {"reduce", "reduce.data", DeviceFault::reduce},
    {"all_to_all", "all_to_all.data", DeviceFault::all_to_all},
    {"all_to_all_v", "all_to_all_v.data", DeviceFault::all_to_all_v},
    {"gather", "gather.data", DeviceFault::gather},
    {"scatter", "scatter.data", DeviceFault::scatter},
    {"send", "send.data", DeviceFault::send_recv},
    {"recv", "recv.data", DeviceFault::send_recv},
};
static_assert(std::size(kNames) == static_cast<std::size_t>(CallKind::recv) + 1);

const Names& names_of(CallKind kind) {
  const auto number = static_cast<std::size_t>(kind);
  return kNames[number < std::size(kNames) ? number : 0];
}

bool reduces(CallKind kind) {
  return kind == CallKind::all_reduce || kind == CallKind::reduce || kind == CallKind::reduce_scatter;
}

bool has_root(CallKind kind) {
  return kind == CallKind::broadcast || kind == CallKind::reduce || kind == CallKind::gather ||
         kind == CallKind::scatter;
}

}  // namespace

const char* to_text(CallKind kind) {
  return names_of(kind).call;
}

DeviceFault::Phase device_phase(CallKind kind) {
  return names_of(kind).device_phase;
}

const char* data_fault_point(CallKind kind) {
  return names_of(kind).data_fault_point;
}

const char* to_text(CallDefect defect) {
  switch (defect) {
    case CallDefect::none:
      return "nothing is wrong";
    case CallDefect::unknown_type:
      return "its element type is unknown";
    case CallDefect::unknown_op:
      return "its reduction is unknown";
    case CallDefect::unknown_algorithm:
      return "its algorithm is unknown";
    case CallDefect::too_large:
      return "its count is too large";
    case CallDefect::null_input:
      return "its input is null";
    case CallDefect::null_output:
      return "its output is null";
    case CallDefect::misaligned:
      return "a pointer is not aligned to the element size";
    case CallDefect::overlap:
      return "input and output overlap without being in place";
    case CallDefect::unsuitable_algorithm:
      return "its algorithm cannot carry it";
    case CallDefect::unknown_root:
      return "its root is no rank of the group";
    case CallDefect::in_place:
      return "it cannot be made in place: input and output must be apart";
    case CallDefect::not_one_per_rank:
      return "it needs one count and one offset per rank, for its input and for its output";
    case CallDefect::not_symmetric:
      return "its output is not in symmetric memory of the group, although CallOptions::symmetric promises "
             "it";
    case CallDefect::factor_without_use:
      return "only premul_sum takes a factor other than 1";
    case CallDefect::factor_not_of_type:
      return "its factor is not a whole number that its element type holds";
    case CallDefect::conflict:
      return "another call of the same GroupCall writes what it reads or writes, or reads what it writes; "
             "such "
             "calls need a GroupCall each";
    case CallDefect::bad_timeout:
      return "its timeout is negative";
    case CallDefect::unusable_options:
      return "its options are unusable; the error on that rank says why";
    case CallDefect::unfitting_spans:
      return "its spans have lengths that do not fit the call; the error on that rank says why";
    case CallDefect::input_not_gpu_memory:
      return "its input is host memory or was freed; memory of its GPU is needed";
    case CallDefect::output_not_gpu_memory:
      return "its output is host memory or was freed; memory of its GPU is needed";
    case CallDefect::input_of_other_gpu:
      return "its input is memory of another GPU; memory of its own is needed";
    case CallDefect::output_of_other_gpu:
      return "its output is memory of another GPU; memory of its own is needed";
    case CallDefect::input_too_short:
      return "its input goes beyond the end of its allocation";
    case CallDefect::output_too_short:
      return "its output goes beyond the end of its allocation";
  }
  return "its arguments are unusable";
}

std::string describe(const host::Call& call) {
  const auto kind = static_cast<CallKind>(call.kind);
  if (kind == CallKind::barrier) return "barrier()";
  if (&names_of(kind) == kNames) return kNames->call;
  std::string text = fmt::format("{}(", to_text(kind));
  if (kind != CallKind::all_to_all_v) text += fmt::format("count {}, ", call.count);
  text += to_string(static_cast<DType>(call.dtype));
  const auto op = static_cast<ReduceOp>(call.op);
  if (reduces(kind)) text += fmt::format(", {}", to_string(op));
  const auto factor = std::bit_cast<double>(call.factor);
  if (op == ReduceOp::premul_sum || factor != 1) text += fmt::format(", factor {}", factor);
  if (has_root(kind)) text += fmt::format(", root {}", call.root);
  if (call.algorithm != kAnyAlgorithm)
    text += fmt::format(", {}", to_string(static_cast<Algorithm>(call.algorithm)));
  if (call.symmetric != 0) text += ", symmetric";
  return text + ")";
}

void require_same_call(const std::vector<const host::Call*>& calls) {
  const host::Call& first = *calls.front();
  for (std::size_t r = 0; r < calls.size(); ++r) {
    const Rank rank{static_cast<int>(r)};
    const host::Call& call = *calls[r];
    if (call.rejected != 0) {
      fail_from(rank, ErrorCode::invalid_argument, "{} of rank {} was rejected: {}", describe(call), r,
                to_text(static_cast<CallDefect>(call.rejected)));
    }
    if (!is_same_call(call, first)) {
      fail_from(rank, ErrorCode::mismatch, "ranks disagree: rank 0 calls {}, rank {} calls {}",
                describe(first), r, describe(call));
    }
  }
}

}  // namespace onehop
