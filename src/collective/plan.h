// SPDX-License-Identifier: Apache-2.0
// Selects the algorithm of a call: a pure function of plain data, the same on every rank.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "onehop/collectives.h"
#include "onehop/group.h"
#include "onehop/tuning.h"
#include "onehop/types.h"

#include "kernel/device_team.h"

namespace onehop {

/// All inputs of the choice. Ranks compare these fields in the first step of a call, so all make the same
/// choice.
struct PlanRequest {
  int ranks = 2;
  std::size_t bytes = 0;
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  AlgorithmPolicy policy = AlgorithmPolicy::tuned;
  std::optional<Algorithm> forced;
  std::size_t staging_bytes = 10u << 20;
  std::size_t copy_bytes = 0;  ///< GPUs: memory for copy engines
  int resident_blocks = 132;   ///< GPUs: blocks that can be resident on every device at once
  /// The group's tuning table, used by the tuned policy if no algorithm is forced; nullptr: none.
  const Tuning* tuning = nullptr;
};

struct Plan {
  Algorithm algorithm = Algorithm::none;
  std::size_t chunk = 0;  ///< bytes per step, a multiple of 64 and of every element size
};

/// Limits of the legacy policy (PyTorch's IntraNodeComm), in bytes, inclusive.
inline constexpr std::size_t kLegacyOneShotBytes = 256 << 10;
inline constexpr std::size_t kLegacyTwoShotBytes = 10 << 20;

/// For the host backend. Always finds an algorithm under the tuned policy.
[[nodiscard]] Plan plan_all_reduce(const PlanRequest& request);

/// For GPUs. Always finds an algorithm under the tuned policy.
[[nodiscard]] DevicePlan plan_device_all_reduce(const PlanRequest& request);

/// For GPUs: the part of an all-reduce that copy engines write directly into the outputs, if these lie at one
/// place of symmetric memory. The part is `launch_bytes` long, all but less than 512 bytes per rank. nullopt:
/// no part, since kernels are faster.
[[nodiscard]] std::optional<DevicePlan> plan_direct_all_reduce(const PlanRequest& request);

/// A sequence of all-reduces that differ only in size and memory. The first `calls` of them share one launch;
/// at least one of these is not empty.
struct ListPlan {
  std::size_t calls = 1;  ///< 1: the call runs separately, and the other members are unused
  LaunchShape shape{};
};
/// For GPUs. `request` describes all calls except for their sizes; `bytes` has one entry per call.
[[nodiscard]] ListPlan plan_device_list(PlanRequest request, std::span<const std::size_t> bytes);

/// For GPUs, with blocks of `request.bytes`. Always one-shot.
[[nodiscard]] DevicePlan plan_device_reduce_scatter(const PlanRequest& request);

/// For GPUs. Over packets or mailboxes it is an all-reduce of which only the root keeps the result.
[[nodiscard]] DevicePlan plan_device_reduce(const PlanRequest& request);

/// For GPUs: a call that only moves blocks.
[[nodiscard]] DevicePlan plan_device_exchange(const CollectiveCall& call);

/// Whether copy engines deliver blocks of this size, one to each rank, to symmetric outputs faster than
/// kernels deliver them to any output.
[[nodiscard]] bool is_quicker_by_copies(int ranks, std::size_t block_bytes);

/// For the host backend. With fewer bytes, the step in which ranks check that all passed symmetric memory
/// costs more than copying the data.
inline constexpr std::size_t kMinZeroCopyBytes = 64 << 10;

/// Whether the legacy policy accepts these pointers: both must be aligned to 4 bytes. This may differ between
/// ranks.
[[nodiscard]] bool legacy_alignment_ok(const void* in, const void* out);

/// The algorithm that a call reports in a group of one rank, on either backend. The legacy policy declines
/// the same calls as in larger groups.
[[nodiscard]] Algorithm plan_alone(const CollectiveCall& call, AlgorithmPolicy policy,
                                   std::size_t staging_bytes);

/// For GPUs: the multiplication that implements premul_sum with one rank.
[[nodiscard]] DevicePlan plan_scaling(const CollectiveCall& call, int resident_blocks);

}  // namespace onehop
