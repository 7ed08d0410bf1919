// SPDX-License-Identifier: Apache-2.0
// Comparing what two ranks call, and naming it in errors.
#pragma once

#include <cstdint>
#include <string>

#include "backend/host/step_barrier.h"

namespace onehop::host {

/// Denotes "any algorithm" in Call::algorithm.
inline constexpr std::uint8_t kAnyAlgorithm = 0xff;

/// Whether two ranks make the same call. The location of their data may differ.
[[nodiscard]] inline bool is_same_call(const Call& a, const Call& b) {
  return a.count == b.count && a.collective == b.collective && a.dtype == b.dtype && a.op == b.op &&
         a.algorithm == b.algorithm && a.symmetric == b.symmetric && a.root == b.root && a.factor == b.factor;
}

/// For example "all_reduce(count 1024, f32, sum)". Accepts what another rank has written.
[[nodiscard]] std::string describe(const Call& call);

}  // namespace onehop::host
