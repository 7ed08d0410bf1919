// SPDX-License-Identifier: Apache-2.0
// Requests that the tests of plans share.
#pragma once

#include "collective/plan.h"

namespace onehop::plan_testing {

inline constexpr std::size_t kKiB = 1 << 10;
inline constexpr std::size_t kMiB = 1 << 20;

inline constexpr std::size_t kSizes[] = {
    0,         1,         2,          64,       65,        4096,      8 * kKiB,  8 * kKiB + 1,
    16 * kKiB, 64 * kKiB, 256 * kKiB, kMiB + 3, 10 * kMiB, 11 * kMiB, 64 * kMiB, std::size_t{1} << 40};

inline PlanRequest request(int ranks, std::size_t bytes) {
  return {.ranks = ranks, .bytes = bytes, .forced = {}};
}

}  // namespace onehop::plan_testing
