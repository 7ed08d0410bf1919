// SPDX-License-Identifier: Apache-2.0
// Small all-reduces of one GroupCall that GPUs make in one launch.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "group/state.h"
#include "kernel/call.h"

namespace onehop {

/// How many of `calls`, from the first on, go together; at least 1.
[[nodiscard]] std::size_t count_fused(Group::State& group, std::span<const CollectiveCall> calls);

/// How many of `calls`, from the first on, are all-reduces that could go in one launch but for their sizes:
/// of the same type, reduction, factor and algorithm, on the same stream. Deadlines and memory are a rank's
/// own.
[[nodiscard]] std::size_t count_similar(std::span<const CollectiveCall> calls);

/// The first of these all-reduces that writes what one before it reads or writes, or reads what that one
/// writes. They have no other error.
[[nodiscard]] std::optional<std::size_t> find_conflict(std::span<const CollectiveCall> calls);

}  // namespace onehop
