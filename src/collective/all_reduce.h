// SPDX-License-Identifier: Apache-2.0
// The all-reduces that one rank makes one after the other: one of them, or those of a GroupCall. On GPUs
// small ones go in one launch.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "onehop/collectives.h"

#include "group/state.h"

namespace onehop {

/// An all_reduce as it was called.
struct AllReduceCall {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  Stream stream;
  CallOptions options;
};

/// Makes them in their order, which host ranks keep. On GPUs what goes in one launch has none, and which
/// calls those are follows from what ranks must agree on.
void make_all_reduces(Group::State& group, std::span<const AllReduceCall> calls);

// --- for tests ---

/// How many calls, from the first on, could go in one launch but for their sizes: of the same type,
/// reduction, factor and algorithm, on the same stream. Deadlines and memory are a rank's own.
[[nodiscard]] std::size_t count_alike(std::span<const AllReduceCall> calls);

/// The first call that writes what one before it reads or writes, or reads what that one writes. They have no
/// other defect.
[[nodiscard]] std::optional<std::size_t> find_conflict(std::span<const AllReduceCall> calls);

}  // namespace onehop
