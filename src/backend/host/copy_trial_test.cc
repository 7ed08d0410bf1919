// SPDX-License-Identifier: Apache-2.0
#include "backend/host/copy_trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

namespace onehop::host {
namespace {

using ::testing::HasSubstr;
using Times = CopyTrial::Times;

TEST(CopyTrial, TimesBothWaysOfReading) {
  for (const std::size_t staging_bytes : {CopyTrial::kBytes, 10 * CopyTrial::kBytes + 1}) {
    std::vector<std::byte> staging(staging_bytes);
    const CopyTrial trial(staging);
    EXPECT_EQ(staging.front(), std::byte{1});
    const auto times = CopyTrial::measure(::getpid(), trial.address(), staging);
    if (!times) GTEST_SKIP() << "process_vm_readv does not work here";
    EXPECT_GT(times->pulled, 0);
    EXPECT_LT(times->pulled, 1e6);
    EXPECT_GT(times->mapped, 0);
    EXPECT_LT(times->mapped, 1e6);
  }
}

TEST(CopyTrial, HasNoResultWhereItCannotRead) {
  std::vector<std::byte> small(CopyTrial::kBytes - 1);
  const CopyTrial trial(small);
  EXPECT_FALSE(CopyTrial::measure(::getpid(), trial.address(), small));
  const std::vector<std::byte> staging(CopyTrial::kBytes);
  EXPECT_FALSE(CopyTrial::measure(::getpid(), 0, staging));
}

TEST(CopyTrial, RanksStageIfMostOfThemMeasuredThatItIsFaster) {
  constexpr Times kFast{.pulled = 8.6, .mapped = 5.4};
  constexpr Times kSlow{.pulled = 6.7, .mapped = 1.8};
  EXPECT_EQ(find_slowness({}), "");
  EXPECT_EQ(find_slowness(std::vector{kFast, kFast}), "");
  EXPECT_EQ(find_slowness(std::vector{kSlow, kFast}), "");
  EXPECT_THAT(find_slowness(std::vector{kFast, kSlow, kSlow}), HasSubstr("6.7 us"));
  EXPECT_THAT(find_slowness(std::vector{kSlow}), HasSubstr("1.8 us"));
}

}  // namespace
}  // namespace onehop::host
