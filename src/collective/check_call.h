// SPDX-License-Identifier: Apache-2.0
// Whether a call can be made: what is wrong with this rank's arguments, and whether all ranks make the same
// call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernel/call.h"
#include "kernel/host/team.h"

namespace onehop {

/// Why a rank cannot make the call it was asked for, as host::Call::rejected carries it. Append only.
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
  input_not_gpu_memory,  // the following concern ranks on GPUs only
  output_not_gpu_memory,
  input_of_other_gpu,
  output_of_other_gpu,
  input_too_short,
  output_too_short,
};
[[nodiscard]] const char* to_text(ArgumentError error);

/// Elements of a type that a call may have. Beyond, byte counts would no longer be safe to add up.
[[nodiscard]] inline std::size_t max_elements(DType type) {
  return (std::size_t{1} << 56) / size_of(type);
}

/// What is wrong with this rank's arguments. It is returned rather than thrown, since all ranks must hear of
/// it.
[[nodiscard]] ArgumentError find_argument_error(const CollectiveCall& call);

/// The same for the memory of a call on a GPU that has no other error: whether kernels of `device` can use
/// what the pointers name.
[[nodiscard]] ArgumentError find_memory_error(const CollectiveCall& call, DeviceId device);

/// The text that the rank itself throws: to_text(), and for a pointer its value and the memory it names.
[[nodiscard]] std::string explain(const CollectiveCall& call, ArgumentError error, DeviceId device);

/// What a rank tells the others of its call.
[[nodiscard]] host::Call record_of(const CollectiveCall& call, ArgumentError error = ArgumentError::none);

/// "all_reduce(count 1024, f32, sum)".
[[nodiscard]] std::string describe(const host::Call& call);

/// Whether two ranks make the same call. Where their data lies may differ.
[[nodiscard]] inline bool is_same_call(const host::Call& a, const host::Call& b) {
  return a.count == b.count && a.collective == b.collective && a.dtype == b.dtype && a.op == b.op &&
         a.algorithm == b.algorithm && a.symmetric == b.symmetric && a.root == b.root && a.factor == b.factor;
}

/// Throws the same Error on every rank when `calls` (one per rank) differ, or one was rejected by its own
/// rank. Pure.
void require_same_call(const std::vector<const host::Call*>& calls);

/// Of all_to_all_v: throws, on all ranks identically, unless `receiver` expects as many elements as `sender`
/// sends it.
void require_same_count(Rank sender, std::uint64_t sent, Rank receiver, std::uint64_t expected);

}  // namespace onehop
