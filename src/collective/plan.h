// SPDX-License-Identifier: Apache-2.0
// Which algorithm a call uses: a pure function of plain data, the same on every rank.
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

/// Everything the choice depends on. Ranks compare these fields in the first step of a call, so they choose
/// alike.
struct PlanRequest {
  int ranks = 2;
  std::size_t bytes = 0;
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  AlgorithmPolicy policy = AlgorithmPolicy::tuned;
  std::optional<Algorithm> forced;
  std::size_t staging_bytes = 10u << 20;
  std::size_t copy_bytes = 0;  ///< GPUs: memory for copy engines
  int resident_blocks = 132;   ///< GPUs: what every device can hold at once
  /// Rows of the group's table, for the tuned policy where no algorithm is forced; nullptr: none.
  const Tuning* tuning = nullptr;
};

struct Plan {
  Algorithm algorithm = Algorithm::none;
  std::size_t chunk = 0;  ///< bytes per step, a multiple of 64 and of every element size
};

/// Limits of the legacy policy (PyTorch's IntraNodeComm): bytes up to and including these.
inline constexpr std::size_t kLegacyOneShotBytes = 256 << 10;
inline constexpr std::size_t kLegacyTwoShotBytes = 10 << 20;

/// Host backend. Always finds an algorithm under the tuned policy.
[[nodiscard]] Plan plan_all_reduce(const PlanRequest& request);

/// GPUs. Always finds an algorithm under the tuned policy.
[[nodiscard]] DevicePlan plan_device_all_reduce(const PlanRequest& request);

/// GPUs: of an all-reduce whose outputs lie at one place of symmetric memory, what copy engines bring
/// straight there: `launch_bytes` of it, all but less than 512 bytes for each rank; none: nothing, kernels
/// are quicker.
[[nodiscard]] std::optional<DevicePlan> plan_direct_all_reduce(const PlanRequest& request);

/// All-reduces that are made one after the other, alike but for their bytes and memory, and those of them
/// that go in one launch: the first `calls`, of which at least one is not empty.
struct ListPlan {
  std::size_t calls = 1;  ///< 1: it goes by itself, and nothing else is said here
  LaunchShape shape{};
};
/// GPUs. `request` describes all of them but for `bytes`, of which there is one entry for each.
[[nodiscard]] ListPlan plan_device_list(PlanRequest request, std::span<const std::size_t> bytes);

/// GPUs. Of blocks of `request.bytes`. Always one-shot.
[[nodiscard]] DevicePlan plan_device_reduce_scatter(const PlanRequest& request);

/// GPUs. Over packets or mailboxes it is an all-reduce of which only the root keeps the result.
[[nodiscard]] DevicePlan plan_device_reduce(const PlanRequest& request);

/// GPUs, of a call that only moves blocks.
[[nodiscard]] DevicePlan plan_device_exchange(const CollectiveCall& call);

/// Whether copy engines bring blocks of so many bytes, one to each rank, to symmetric memory sooner than
/// kernels bring them anywhere.
[[nodiscard]] bool is_quicker_by_copies(int ranks, std::size_t block_bytes);

/// Host backend. With fewer bytes, the step in which ranks find out whether all passed symmetric memory costs more than
/// copying the data.
inline constexpr std::size_t kMinZeroCopyBytes = 64 << 10;

/// Whether the legacy policy takes these pointers: both aligned to 4 bytes. This may differ between ranks.
[[nodiscard]] bool legacy_alignment_ok(const void* in, const void* out);

/// Of a call in a group of one rank, on either backend: what it reports. The legacy policy declines what it
/// declines in larger groups.
[[nodiscard]] Algorithm plan_alone(const CollectiveCall& call, AlgorithmPolicy policy,
                                   std::size_t staging_bytes);

/// GPUs: of the multiplication that a premul_sum of one rank is.
[[nodiscard]] DevicePlan plan_scaling(const CollectiveCall& call, int resident_blocks);

}  // namespace onehop
