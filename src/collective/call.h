// SPDX-License-Identifier: Apache-2.0
// How ranks find out that they do not make the same call, before any of them acts on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onehop/device/view.h"

#include "kernel/host/team.h"

namespace onehop {

/// Collectives by number, as host::Call::kind carries them. Append only.
enum class CallKind : std::uint8_t {
  barrier = 1,
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  all_to_all,
  all_to_all_v,
  gather,
  scatter,
  send,
  recv,
};
/// "all_reduce", as users call it.
[[nodiscard]] const char* to_text(CallKind kind);
/// The same for a wait on a device.
[[nodiscard]] DeviceFault::Phase device_phase(CallKind kind);
/// Where fault tests strike when ranks have met and data is on its way: "all_reduce.data".
[[nodiscard]] const char* data_fault_point(CallKind kind);

/// Why a rank cannot make the call it was asked for, as host::Call::rejected carries it. Append only.
enum class CallDefect : std::uint8_t {
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
  input_not_gpu_memory,  // these six of ranks on GPUs
  output_not_gpu_memory,
  input_of_other_gpu,
  output_of_other_gpu,
  input_too_short,
  output_too_short,
};
[[nodiscard]] const char* to_text(CallDefect defect);

/// "any algorithm" in host::Call::algorithm.
inline constexpr std::uint8_t kAnyAlgorithm = 0xff;

/// "all_reduce(count 1024, f32, sum)".
[[nodiscard]] std::string describe(const host::Call& call);

/// In all that must be equal; placement may differ.
[[nodiscard]] inline bool is_same_call(const host::Call& a, const host::Call& b) {
  return a.count == b.count && a.kind == b.kind && a.dtype == b.dtype && a.op == b.op &&
         a.algorithm == b.algorithm && a.symmetric == b.symmetric && a.root == b.root && a.factor == b.factor;
}

/// Throws the same Error on every rank when `calls` (one per rank) differ in what must be equal, or one was
/// rejected by its own rank. Placement may differ and is not compared. Pure.
void require_same_call(const std::vector<const host::Call*>& calls);

}  // namespace onehop
