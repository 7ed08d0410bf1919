// SPDX-License-Identifier: Apache-2.0
// Checks of calls: whether this rank's arguments are valid, and whether all ranks make the same call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "call/call.h"
#include "call/call_record.h"
#include "memory/gpu_pointer.h"

namespace onehop {

/// Why a rank cannot make the requested call, as CallRecord::rejected carries it. Append only.
enum class ArgumentError : std::uint8_t {
  none = 0,
  unknown_type,
  unknown_op,
  unknown_algorithm,
  too_large,
  null_input,
  misaligned,
  overlap,
  unsuitable_algorithm,
  unknown_root,
  in_place,
  not_one_per_rank,
  null_output,
  not_symmetric,
  factor_without_use,
  factor_not_of_type,
  conflict,
  bad_timeout,
  unusable_options,
  unfitting_spans,
  input_not_gpu_memory,  // the following concern GPU ranks only
  output_not_gpu_memory,
  input_of_other_gpu,
  output_of_other_gpu,
  input_too_short,
  output_too_short,
  refused_by_caller,  ///< for a reason of its own, which the ranks exchange
  unknown_collective,
  own_factor_without_use,
  own_factor_not_gpu_memory,
  two_factors,
  in_gpu_memory,  ///< of host ranks
};
[[nodiscard]] const char* to_text(ArgumentError error);

/// The maximum number of elements of a type in a call. Beyond it, sums of byte counts might overflow.
[[nodiscard]] inline std::size_t max_elements(DType type) {
  return (std::size_t{1} << 56) / inline_size_of(type);
}

/// Whether two ranges have bytes in common. Compares addresses as numbers: pointers into different arrays must not be
/// compared.
[[nodiscard]] bool overlap(std::span<const std::byte> a, std::span<const std::byte> b);

/// Finds the error in this rank's arguments. Returns it rather than throwing, since all ranks must learn of
/// it.
[[nodiscard]] ArgumentError find_argument_error(const CollectiveCall& call);

/// The same for the memory of a call on a GPU that has no other error: checks that kernels of `device` can
/// use the memory behind the pointers.
[[nodiscard]] ArgumentError find_memory_error(const CollectiveCall& call, DeviceId device);

/// The same for a call on the host: whether a pointer is GPU memory (is_gpu_memory).
[[nodiscard]] inline ArgumentError find_host_memory_error(const CollectiveCall& call) {
  const bool unread_factor = call.options.own_factor != nullptr && !call.own_factor;
  const bool wrong = unread_factor || (call.passes_in() && is_gpu_memory(call.in_at())) ||
                     (call.gets_out() && is_gpu_memory(call.out_at()));
  return wrong && call.has_data() ? ArgumentError::in_gpu_memory : ArgumentError::none;
}

/// The message that the rank itself throws: to_text(), and for a pointer its value and the memory it points
/// to.
[[nodiscard]] std::string explain(const CollectiveCall& call, ArgumentError error, DeviceId device);

/// The record of a call that a rank publishes to the others.
[[nodiscard]] CallRecord record_of(const CollectiveCall& call, ArgumentError error = ArgumentError::none);

/// Throws the same Error on every rank if `calls` (one per rank) differ, or if a rank has rejected its own.
/// Pure.
void require_same_call(std::span<const CallRecord> calls);

/// For all_to_all_v: throws, identically on all ranks, unless `receiver` expects as many elements as `sender`
/// sends to it.
void require_same_count(Rank sender, std::uint64_t sent, Rank receiver, std::uint64_t expected);

}  // namespace onehop
