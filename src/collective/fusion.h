// SPDX-License-Identifier: Apache-2.0
// Small all-reduces of one GroupCall that GPUs execute in one launch.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "backend/selector.h"
#include "call/call.h"
#include "group/state.h"

namespace onehop {

/// The number of `calls`, counted from the first, that are executed together; at least 1.
[[nodiscard]] std::size_t count_fused(const Group::State& group, std::span<const CollectiveCall> calls);

/// The number of `calls`, counted from the first, that could share a launch if their sizes allow it. These
/// are all-reduces of the same type, reduction, factor and algorithm. Timeouts and memory may differ between
/// ranks.
[[nodiscard]] std::size_t count_similar(std::span<const CollectiveCall> calls);

/// The number of `calls`, counted from the first, that one launch of ll_one_shot carries; at least 1. The calls
/// are similar (count_similar).
[[nodiscard]] std::size_t count_fitting(const Selector& selector, std::span<const CollectiveCall> calls);

/// The first of these all-reduces that conflicts with an earlier one: it writes what that one reads or
/// writes, or reads what that one writes. They have no other error.
[[nodiscard]] std::optional<std::size_t> find_conflict(std::span<const CollectiveCall> calls);

}  // namespace onehop
