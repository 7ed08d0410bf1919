// SPDX-License-Identifier: Apache-2.0
// Checks, made by every rank, that a group and its memory work.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "onehop/onehop.h"

namespace onehop::testing {

/// Allowed beyond what is promised (100 ms after a deadline), for a machine that is busy with other tests.
inline constexpr Duration kSlack = std::chrono::seconds{5};

/// Checks that the group works.
inline void expect_usable(Group& group) {
  std::vector<std::int32_t> ones(100, 1);
  all_reduce(group, std::span<std::int32_t>(ones));
  EXPECT_THAT(ones, ::testing::Each(group.size()));
}

/// Every rank fills its part and reads all parts.
inline void expect_shared(Group& group, const SymmetricBuffer& buffer, int round = 0) {
  const auto mark = [&](int r) { return 1 + (round * group.size() + r) % 250; };
  std::memset(buffer.local(), mark(group.rank().value), buffer.bytes());
  buffer.barrier();
  for (int r = 0; r < group.size(); ++r) {
    for (const std::byte b : buffer.peer_as<std::byte>(Rank{r})) ASSERT_EQ(static_cast<int>(b), mark(r));
  }
  buffer.barrier();
}

}  // namespace onehop::testing
