// SPDX-License-Identifier: Apache-2.0
#include "collective/arguments.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "base/check.h"
#include "memory/user_pointer.h"

namespace onehop {
namespace {

bool misaligned(const std::byte* data, std::size_t element) {
  return reinterpret_cast<std::uintptr_t>(data) % element != 0;
}

CallDefect find_pointer_defect(const Arguments& call) {
  const bool uses_in = call.in_blocks > 0;
  const bool uses_out = call.out_blocks > 0;
  if (uses_in && call.in == nullptr) return CallDefect::null_input;
  if (uses_out && call.out == nullptr) return CallDefect::null_output;
  const std::size_t element = size_of(call.type);
  if ((uses_in && misaligned(call.in, element)) || (uses_out && misaligned(call.out, element)))
    return CallDefect::misaligned;
  if (!uses_in || !uses_out) return CallDefect::none;

  // As numbers: pointers into different arrays must not be compared.
  const std::size_t block = call.block_bytes();
  const auto in = reinterpret_cast<std::uintptr_t>(call.in);
  const auto out = reinterpret_cast<std::uintptr_t>(call.out);
  const bool apart = in + static_cast<std::size_t>(call.in_blocks) * block <= out ||
                     out + static_cast<std::size_t>(call.out_blocks) * block <= in;
  if (apart) return CallDefect::none;
  if (!call.in_place) return in == out ? CallDefect::in_place : CallDefect::overlap;
  const std::uintptr_t in_place = out + static_cast<std::uintptr_t>(*call.in_place) * block;  // wraps below 0
  return in == in_place ? CallDefect::none : CallDefect::overlap;
}

CallDefect find_memory_defect(std::span<const std::byte> data, DeviceId device, Stream stream,
                              CallDefect not_gpu_memory, CallDefect of_other_gpu, CallDefect too_short) {
  if (data.empty()) return CallDefect::none;
  switch (check_pointer(data.data(), data.size(), device, stream)) {
    case PointerDefect::none:
      break;
    case PointerDefect::not_gpu_memory:
      return not_gpu_memory;
    case PointerDefect::other_gpu:
      return of_other_gpu;
    case PointerDefect::too_short:
      return too_short;
  }
  return CallDefect::none;
}

}  // namespace

CallDefect find_memory_defect(const Arguments& call, DeviceId device) {
  const std::span<const std::byte> in = call.input();
  const std::span<const std::byte> out = call.output();
  const CallDefect defect = find_memory_defect(in, device, call.stream, CallDefect::input_not_gpu_memory,
                                               CallDefect::input_of_other_gpu, CallDefect::input_too_short);
  const bool both = in.data() == out.data() && in.size() == out.size();
  if (defect != CallDefect::none || both) return defect;
  return find_memory_defect(out, device, call.stream, CallDefect::output_not_gpu_memory,
                            CallDefect::output_of_other_gpu, CallDefect::output_too_short);
}

std::string explain(const Arguments& call, CallDefect defect, DeviceId device) {
  std::string details;
  switch (defect) {
    case CallDefect::input_not_gpu_memory:
    case CallDefect::input_of_other_gpu:
    case CallDefect::input_too_short:
      details = describe_wrong_pointer(call.input().data(), call.input().size(), device, call.stream);
      break;
    case CallDefect::output_not_gpu_memory:
    case CallDefect::output_of_other_gpu:
    case CallDefect::output_too_short:
      details = describe_wrong_pointer(call.output().data(), call.output().size(), device, call.stream);
      break;
    default:
      break;
  }
  // Memory of another thread's may have changed since.
  return details.empty() ? to_text(defect) : fmt::format("{} ({})", to_text(defect), details);
}

CallDefect find_defect(const Arguments& call, int ranks) {
  if (call.options.timeout && call.options.timeout->count() < 0) return CallDefect::bad_timeout;
  if (static_cast<int>(call.type) >= kDTypeCount) return CallDefect::unknown_type;
  if (call.op && static_cast<int>(*call.op) >= kReduceOpCount) return CallDefect::unknown_op;
  const double factor = call.options.factor;
  if (call.op != ReduceOp::premul_sum && factor != 1) return CallDefect::factor_without_use;
  if (call.op == ReduceOp::premul_sum && !can_scale(call.type, factor)) return CallDefect::factor_not_of_type;
  if (const std::optional<Algorithm> algorithm = call.options.algorithm) {
    if (*algorithm == Algorithm::none || static_cast<int>(*algorithm) >= kAlgorithmCount)
      return CallDefect::unknown_algorithm;
    const bool any = call.kind == CallKind::all_reduce || call.kind == CallKind::reduce;
    if (!any && *algorithm != Algorithm::one_shot) return CallDefect::unsuitable_algorithm;
  }
  if (call.root && (call.root->value < 0 || call.root->value >= ranks)) return CallDefect::unknown_root;
  const auto blocks = static_cast<std::size_t>(std::max({call.in_blocks, call.out_blocks, 1}));
  if (call.count > max_elements(call.type) / blocks) return CallDefect::too_large;
  return call.count == 0 ? CallDefect::none : find_pointer_defect(call);
}

host::Call describe_call(const Arguments& call, CallDefect defect) {
  using Root = std::numeric_limits<std::int8_t>;
  const int root = call.root ? call.root->value : -1;
  return {.count = call.count,
          .kind = static_cast<std::uint8_t>(call.kind),
          .dtype = static_cast<std::uint8_t>(call.type),
          .op = static_cast<std::uint8_t>(call.op.value_or(ReduceOp::sum)),
          .algorithm =
              call.options.algorithm ? static_cast<std::uint8_t>(*call.options.algorithm) : kAnyAlgorithm,
          .rejected = static_cast<std::uint8_t>(defect),
          .symmetric = static_cast<std::uint8_t>(call.options.symmetric),
          .root = static_cast<std::int8_t>(std::clamp<int>(root, Root::min(), Root::max())),
          .factor = std::bit_cast<std::uint64_t>(call.options.factor)};
}

}  // namespace onehop
