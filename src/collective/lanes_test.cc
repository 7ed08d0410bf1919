// SPDX-License-Identifier: Apache-2.0
#include "collective/lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onehop {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr DeviceId kFirst{0};
constexpr DeviceId kSecond{1};
constexpr bool kOfThread = true;

TEST(Lanes, EveryBatchHasItsOwn) {
  EXPECT_THAT(to_lanes({}), IsEmpty());
  const std::vector<WaitingBatch> batches = {{"a", kFirst}, {"b", kFirst}, {"a", kSecond}};
  EXPECT_THAT(to_lanes(batches), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

TEST(Lanes, BatchesOnTheStreamOfTheThreadShareTheFirst) {
  const std::vector<WaitingBatch> batches = {
      {"a", kFirst}, {"b", kFirst, kOfThread}, {"c", kFirst}, {"d", kFirst, kOfThread}};
  EXPECT_THAT(to_lanes(batches), ElementsAre(ElementsAre(1, 3), ElementsAre(0), ElementsAre(2)));
}

TEST(Lanes, RanksOfOneGroupDoNotShare) {
  const std::vector<WaitingBatch> batches = {{"a", kFirst, kOfThread},
                                             {"a", kSecond, kOfThread},
                                             {"b", kFirst, kOfThread},
                                             {"b", kSecond, kOfThread},
                                             {"b", kFirst, kOfThread}};
  EXPECT_THAT(to_lanes(batches), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4)));
}

}  // namespace
}  // namespace onehop
