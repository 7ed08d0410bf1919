// SPDX-License-Identifier: Apache-2.0
#include "call/check_call.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "base/check.h"
#include "memory/user_pointer.h"

namespace onehop {
namespace {

bool is_misaligned(const std::byte* data, std::size_t element) {
  return reinterpret_cast<std::uintptr_t>(data) % element != 0;
}

ArgumentError find_pointer_error(const CollectiveCall& call) {
  if (call.passes_in() && call.in_at() == nullptr) return ArgumentError::null_input;
  if (call.gets_out() && call.out_at() == nullptr) return ArgumentError::null_output;
  const std::size_t element = call.element_bytes();
  if ((call.passes_in() && is_misaligned(call.in_at(), element)) ||
      (call.gets_out() && is_misaligned(call.out_at(), element)))
    return ArgumentError::misaligned;
  if (!call.passes_in() || !call.gets_out() || !overlap(call.input(), call.output()))
    return ArgumentError::none;

  const auto in = reinterpret_cast<std::uintptr_t>(call.in_at());
  const auto out = reinterpret_cast<std::uintptr_t>(call.out_at());
  const std::optional<int> blocks = call.in_place_offset();
  if (!blocks) return in == out ? ArgumentError::in_place : ArgumentError::overlap;
  const std::uintptr_t in_place = out + static_cast<std::uintptr_t>(*blocks) * call.block_bytes();
  return in == in_place ? ArgumentError::none : ArgumentError::overlap;
}

bool has_one_per_rank(const Blocks& blocks, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return blocks.counts.size() == n && blocks.offsets.size() == n;
}

bool is_too_large(const Blocks& blocks, std::size_t limit) {
  std::size_t total = 0;
  for (std::size_t r = 0; r < blocks.counts.size(); ++r) {
    if (blocks.counts[r] == 0) continue;
    if (blocks.counts[r] > limit - total || blocks.offsets[r] > limit - blocks.counts[r]) return true;
    total += blocks.counts[r];
  }
  return false;
}

/// For all_to_all_v.
ArgumentError find_block_error(const CollectiveCall& call) {
  if (!has_one_per_rank(call.in_blocks, call.ranks) || !has_one_per_rank(call.out_blocks, call.ranks))
    return ArgumentError::not_one_per_rank;
  const std::size_t limit = max_elements(call.type);
  if (is_too_large(call.in_blocks, limit) || is_too_large(call.out_blocks, limit))
    return ArgumentError::too_large;
  const auto has_elements = [](std::size_t count) { return count != 0; };
  const bool reads = std::ranges::any_of(call.in_blocks.counts, has_elements);
  const bool writes = std::ranges::any_of(call.out_blocks.counts, has_elements);
  if (reads && call.in_at() == nullptr) return ArgumentError::null_input;
  if (writes && call.out_at() == nullptr) return ArgumentError::null_output;
  const std::size_t element = call.element_bytes();
  if ((reads && is_misaligned(call.in_at(), element)) || (writes && is_misaligned(call.out_at(), element)))
    return ArgumentError::misaligned;
  for (int s = 0; s < call.ranks; ++s) {
    for (int r = 0; r < call.ranks; ++r) {
      const std::span<const std::byte> in = call.block_to(s);
      const std::span<const std::byte> out = call.block_from(r);
      if (!in.empty() && !out.empty() && overlap(in, out)) return ArgumentError::in_place;
    }
  }
  return ArgumentError::none;
}

struct MemoryErrors {
  ArgumentError not_gpu_memory;
  ArgumentError of_other_gpu;
  ArgumentError too_short;
};
constexpr MemoryErrors kOfInput{ArgumentError::input_not_gpu_memory, ArgumentError::input_of_other_gpu,
                                ArgumentError::input_too_short};
constexpr MemoryErrors kOfOutput{ArgumentError::output_not_gpu_memory, ArgumentError::output_of_other_gpu,
                                 ArgumentError::output_too_short};

ArgumentError find_memory_error(std::span<const std::byte> data, DeviceId device, Stream stream,
                                const MemoryErrors& errors) {
  if (data.empty()) return ArgumentError::none;
  switch (check_pointer(data.data(), data.size(), device, stream)) {
    case PointerError::none:
      break;
    case PointerError::not_gpu_memory:
      return errors.not_gpu_memory;
    case PointerError::other_gpu:
      return errors.of_other_gpu;
    case PointerError::too_short:
      return errors.too_short;
  }
  return ArgumentError::none;
}

bool is_of(const MemoryErrors& errors, ArgumentError error) {
  return error == errors.not_gpu_memory || error == errors.of_other_gpu || error == errors.too_short;
}

}  // namespace

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const auto first = reinterpret_cast<std::uintptr_t>(a.data());
  const auto second = reinterpret_cast<std::uintptr_t>(b.data());
  return first < second + b.size() && second < first + a.size();
}

const char* to_text(ArgumentError error) {
  switch (error) {
    case ArgumentError::none:
      return "nothing is wrong";
    case ArgumentError::unknown_type:
      return "its element type is unknown";
    case ArgumentError::unknown_op:
      return "its reduction is unknown";
    case ArgumentError::unknown_algorithm:
      return "its algorithm is unknown";
    case ArgumentError::too_large:
      return "its count is too large";
    case ArgumentError::null_input:
      return "its input is null";
    case ArgumentError::null_output:
      return "its output is null";
    case ArgumentError::misaligned:
      return "a pointer is not aligned to the element size";
    case ArgumentError::overlap:
      return "input and output overlap without being in place";
    case ArgumentError::unsuitable_algorithm:
      return "its algorithm cannot carry it";
    case ArgumentError::unknown_root:
      return "its root is no rank of the group";
    case ArgumentError::in_place:
      return "it cannot be made in place: input and output must be apart";
    case ArgumentError::not_one_per_rank:
      return "it needs one count and one offset per rank, for its input and for its output";
    case ArgumentError::not_symmetric:
      return "its output is not in symmetric memory of the group, although CallOptions::symmetric promises "
             "it";
    case ArgumentError::factor_without_use:
      return "only premul_sum takes a factor other than 1";
    case ArgumentError::own_factor_without_use:
      return "only premul_sum takes an own_factor";
    case ArgumentError::two_factors:
      return "it has both a factor and an own_factor";
    case ArgumentError::own_factor_not_gpu_memory:
      return "its own factor is not in memory of its GPU; for host memory set own_factor_on_host";
    case ArgumentError::factor_not_of_type:
      return "its factor is not a whole number that its element type holds";
    case ArgumentError::conflict:
      return "another call of the same GroupCall writes what it reads or writes, or reads what it writes; "
             "such calls need a GroupCall each";
    case ArgumentError::bad_timeout:
      return "its timeout is negative";
    case ArgumentError::unusable_options:
      return "its options are unusable; the error on that rank says why";
    case ArgumentError::unfitting_spans:
      return "its spans have lengths that do not fit the call; the error on that rank says why";
    case ArgumentError::input_not_gpu_memory:
      return "its input is host memory or was freed; memory of its GPU is needed";
    case ArgumentError::output_not_gpu_memory:
      return "its output is host memory or was freed; memory of its GPU is needed";
    case ArgumentError::input_of_other_gpu:
      return "its input is memory of another GPU; memory of its own is needed";
    case ArgumentError::output_of_other_gpu:
      return "its output is memory of another GPU; memory of its own is needed";
    case ArgumentError::input_too_short:
      return "its input goes beyond the end of its allocation";
    case ArgumentError::output_too_short:
      return "its output goes beyond the end of its allocation";
    case ArgumentError::refused_by_caller:
      return "its caller refused it; the error on that rank says why";
    case ArgumentError::in_gpu_memory:
      return "its input, output or own factor is GPU memory, which host ranks cannot access; join with "
             "JoinOptions::device, or pass host memory";
    case ArgumentError::unknown_collective:
      return "its collective is unknown";
  }
  return "its arguments are unusable";
}

ArgumentError find_argument_error(const CollectiveCall& call) {
  const CollectiveTraits& traits = call.traits();
  if (static_cast<int>(call.collective) >= kCollectiveCount) return ArgumentError::unknown_collective;
  if (call.options.timeout && call.options.timeout->count() < 0) return ArgumentError::bad_timeout;
  if (static_cast<int>(call.type) >= kDTypeCount) return ArgumentError::unknown_type;
  if (traits.reduces && static_cast<int>(call.op) >= kReduceOpCount) return ArgumentError::unknown_op;
  const bool multiplies = traits.reduces && call.op == ReduceOp::premul_sum;
  const bool has_own = call.options.own_factor != nullptr;
  if (!multiplies && call.options.factor != 1) return ArgumentError::factor_without_use;
  if (!multiplies && has_own) return ArgumentError::own_factor_without_use;
  if (has_own && call.options.factor != 1) return ArgumentError::two_factors;
  if (has_own && call.count != 0 &&
      is_misaligned(static_cast<const std::byte*>(call.options.own_factor), call.element_bytes()))
    return ArgumentError::misaligned;
  if (multiplies && !can_scale(call.type, call.options.factor)) return ArgumentError::factor_not_of_type;
  if (call.options.algorithm) {
    if (*call.options.algorithm == Algorithm::none ||
        static_cast<int>(*call.options.algorithm) >= kAlgorithmCount)
      return ArgumentError::unknown_algorithm;
    if (!traits.has_two_shot && *call.options.algorithm != Algorithm::one_shot)
      return ArgumentError::unsuitable_algorithm;
  }
  if (traits.has_root() && (call.root.value < 0 || call.root.value >= call.ranks))
    return ArgumentError::unknown_root;
  if (traits.in == Amount::counted_by_rank) return find_block_error(call);
  const bool many = (traits.in == Amount::block_per_rank && call.passes_in()) ||
                    (traits.out == Amount::block_per_rank && call.gets_out());
  if (call.count > max_elements(call.type) / static_cast<std::size_t>(many ? call.ranks : 1))
    return ArgumentError::too_large;
  return call.count == 0 ? ArgumentError::none : find_pointer_error(call);
}

ArgumentError find_memory_error(const CollectiveCall& call, DeviceId device) {
  const std::span<const std::byte> in = call.input();
  const std::span<const std::byte> out = call.output();
  const ArgumentError error = find_memory_error(in, device, call.stream, kOfInput);
  if (error == ArgumentError::none && call.options.own_factor != nullptr && !call.own_factor &&
      call.count != 0 &&
      check_pointer(call.options.own_factor, call.element_bytes(), device, call.stream) != PointerError::none)
    return ArgumentError::own_factor_not_gpu_memory;
  const bool same = in.data() == out.data() && in.size() == out.size();
  if (error != ArgumentError::none || same) return error;
  return find_memory_error(out, device, call.stream, kOfOutput);
}

std::string explain(const CollectiveCall& call, ArgumentError error, DeviceId device) {
  if (call.refusal != nullptr) return call.refusal->message();
  std::span<const std::byte> wrong;
  if (is_of(kOfInput, error)) wrong = call.input();
  if (is_of(kOfOutput, error)) wrong = call.output();
  // Empty if another thread has changed the memory since.
  const std::string details =
      wrong.empty() ? "" : describe_wrong_pointer(wrong.data(), wrong.size(), device, call.stream);
  return details.empty() ? to_text(error) : fmt::format("{} ({})", to_text(error), details);
}

CallRecord record_of(const CollectiveCall& call, ArgumentError error) {
  using Root = std::numeric_limits<std::int8_t>;
  const CollectiveTraits& traits = call.traits();
  const int root = traits.has_root() ? call.root.value : -1;
  return {.count = traits.in == Amount::counted_by_rank ? 0 : call.count,
          .collective = static_cast<std::uint8_t>(call.collective),
          .dtype = static_cast<std::uint8_t>(call.type),
          .op = static_cast<std::uint8_t>(traits.reduces ? call.op : ReduceOp::sum),
          .algorithm =
              call.options.algorithm ? static_cast<std::uint8_t>(*call.options.algorithm) : kAnyAlgorithm,
          .rejected = static_cast<std::uint8_t>(error),
          .own_factor = static_cast<std::uint8_t>(call.options.own_factor != nullptr),
          .symmetric = static_cast<std::uint8_t>(call.options.symmetric),
          .root = static_cast<std::int8_t>(std::clamp<int>(root, Root::min(), Root::max())),
          .factor = std::bit_cast<std::uint64_t>(call.options.factor)};
}

void require_same_call(std::span<const CallRecord> calls) {
  const CallRecord& first = calls.front();
  for (std::size_t r = 0; r < calls.size(); ++r) {
    const Rank rank{static_cast<int>(r)};
    const CallRecord& call = calls[r];
    if (call.rejected != 0) {
      fail_from(rank, ErrorCode::invalid_argument, "{} of rank {} was rejected: {}", describe(call), r,
                to_text(static_cast<ArgumentError>(call.rejected)));
    }
    if (!is_same_call(call, first)) {
      fail_from(rank, ErrorCode::mismatch, "ranks disagree: rank 0 calls {}, rank {} calls {}",
                describe(first), r, describe(call));
    }
  }
}

void require_same_count(Rank sender, std::uint64_t sent, Rank receiver, std::uint64_t expected) {
  if (sent == expected) return;
  fail_from(sender, ErrorCode::mismatch,
            "ranks disagree in all_to_all_v: rank {} sends {} elements to rank {}, which expects {}",
            sender.value, sent, receiver.value, expected);
}

}  // namespace onehop
