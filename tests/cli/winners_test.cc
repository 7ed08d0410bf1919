// SPDX-License-Identifier: Apache-2.0
// From times to a table: what onehop tune decides.
#include "bench/winners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onehop::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Choice kDefault;
const Choice kOne = AlgorithmChoice{.algorithm = "one_shot", .chunk = 64 << 10};
const Choice kTwo = AlgorithmChoice{.algorithm = "two_shot", .chunk = 64 << 10};
const TuningRow kLike{.collective = onehop::Collective::reduce, .ranks = 2, .types = TypeClass::floats};

/// `us[choice][size]`; 0: not measured. Sizes are 1 MiB, 2 MiB, 4 MiB, ...
Figures figures(const std::vector<std::vector<double>>& us) {
  std::vector<std::uint64_t> sizes;
  for (std::size_t i = 0; i < us[0].size(); ++i) sizes.push_back(std::uint64_t{1 << 20} << i);
  Figures out(sizes, {kDefault, kOne, kTwo});
  for (std::size_t choice = 0; choice < us.size(); ++choice) {
    for (std::size_t size = 0; size < sizes.size(); ++size) {
      if (us[choice][size] > 0) out.us[choice][size] = us[choice][size];
    }
  }
  return out;
}

std::vector<std::size_t> choices(const Figures& of) {
  std::vector<std::size_t> out;
  for (const Winner& winner : pick_winners(of)) out.push_back(winner.choice);
  return out;
}

TEST(Winners, TheFastestOfEachSizeWins) {
  EXPECT_THAT(choices(figures({{10, 10, 10}, {5, 20, 20}, {20, 20, 5}})), ElementsAre(1, 0, 2));
}

TEST(Winners, TheDefaultStaysWhereItIsAsGoodAsTheFastest) {
  EXPECT_THAT(choices(figures({{10.2, 10.3}, {10, 10}, {11, 11}})), ElementsAre(0, 1));
}

TEST(Winners, TheChoiceOfThePreviousSizeStaysWhereItIsAsGood) {
  EXPECT_THAT(choices(figures({{20, 20, 20}, {10, 10.1, 10.3}, {11, 10, 10}})), ElementsAre(1, 1, 2));
}

TEST(Winners, SayTheirTimeAndTheDefaults) {
  const std::vector<Winner> winners = pick_winners(figures({{10}, {7}, {8}}));
  ASSERT_EQ(winners.size(), 1u);
  EXPECT_EQ(winners[0].bytes, 1u << 20);
  EXPECT_EQ(winners[0].us, 7);
  EXPECT_EQ(winners[0].default_us, 10);
}

TEST(Finalists, AreTheCloseOnesTheFastestFirstAndTheDefault) {
  EXPECT_THAT(finalists(figures({{30}, {10.9}, {10}}), 0), ElementsAre(2, 1, 0));
  EXPECT_THAT(finalists(figures({{10.5}, {12}, {10}}), 0), ElementsAre(2, 0));
  EXPECT_THAT(finalists(figures({{30}, {11.1}, {10}}), 0), ElementsAre(2, 0)) << "it may have been unlucky";
  EXPECT_THAT(finalists(figures({{10}, {11.1}, {12}}), 0), ElementsAre(0)) << "decided";
  EXPECT_THAT(finalists(figures({{10}, {0}, {10.5}}), 0), ElementsAre(0, 2)) << "one was given up";
  EXPECT_THAT(finalists(figures({{0}, {0}, {0}}), 0), IsEmpty());
}

TEST(Finalists, AreAtMostFourBesideTheDefault) {
  std::vector<Choice> choices{kDefault};
  for (std::size_t chunk = 1; chunk <= 6; ++chunk)
    choices.emplace_back(AlgorithmChoice{.algorithm = "two_shot", .chunk = chunk << 10});
  Figures of({1 << 20}, choices);
  for (std::size_t choice = 0; choice < choices.size(); ++choice)
    of.us[choice][0] = 10.9 - 0.1 * static_cast<double>(choice);
  EXPECT_THAT(finalists(of, 0), ElementsAre(6, 5, 4, 3, 0));
}

TEST(Finalists, AreMeasuredOnceIfTheyAreTheSame) {
  Figures of({1 << 10}, {kDefault, kOne, AlgorithmChoice{.algorithm = "one_shot", .chunk = 128 << 10}});
  of.us[0][0] = 10;
  of.us[1][0] = of.us[2][0] = 9.5;
  EXPECT_THAT(finalists(of, 0), ElementsAre(1, 0)) << "both chunks hold the whole message";
}

TEST(Winners, ChoicesThatWereGivenUpDoNotWin) {
  EXPECT_THAT(choices(figures({{10, 10}, {5, 0}, {20, 9}})), ElementsAre(1, 2));
}

TEST(Winners, AChoiceIsFarSlowerAtTwiceTheBestTimeOfALargeMessage) {
  const Figures of = figures({{9, 9, 9, 9, 9}, {3, 3, 3, 3, 3}, {7, 7, 7, 7, 6}});
  EXPECT_FALSE(is_far_slower(of, 2, 3)) << "8 MiB";
  EXPECT_FALSE(is_far_slower(of, 2, 4)) << "exactly twice";
  EXPECT_FALSE(is_far_slower(of, 0, 4)) << "the default";
  EXPECT_TRUE(is_far_slower(figures({{9, 9, 9, 9, 9}, {3, 3, 3, 3, 3}, {7, 7, 7, 7, 7}}), 2, 4));
}

TEST(Winners, ChunksThatHoldTheWholeMessageAreTheSameChoice) {
  const Choice larger = AlgorithmChoice{.algorithm = "one_shot", .chunk = 128 << 10};
  const Choice gpus = AlgorithmChoice{.algorithm = "ll_one_shot", .blocks = 32, .threads = 128};
  const Figures of({64 << 10, (64 << 10) + 1}, {kDefault, kOne, kTwo, larger, gpus});
  EXPECT_EQ(equivalent(of, 3, 0), 1u);
  EXPECT_EQ(equivalent(of, 3, 1), std::nullopt) << "two chunks of the smaller one";
  for (const std::size_t choice : {0, 1, 2, 4}) EXPECT_EQ(equivalent(of, choice, 0), std::nullopt) << choice;
}

TEST(Winners, NeighborsBecomeOneRowAndTheLastHasNoEnd) {
  const Figures of = figures({{10, 10, 10, 10}, {5, 5, 20, 20}, {20, 20, 20, 5}});
  const std::vector<TuningRow> rows = merge(of, pick_winners(of), kLike);
  const auto row = [](std::uint64_t up_to, const Choice& choice) {
    TuningRow out = kLike;
    out.up_to = up_to;
    out.choice = choice;
    return out;
  };
  EXPECT_THAT(rows, ElementsAre(row(2 << 20, kOne), row(4 << 20, kDefault), row(kNoLimit, kTwo)));
  const Tuning table{.device = {}, .rows = rows};
  EXPECT_EQ(Tuning::from_json(table.to_json()), table);
}

TEST(Winners, ChoicesAreDescribed) {
  EXPECT_EQ(describe(kDefault), "default");
  EXPECT_EQ(describe(kOne), "one_shot in chunks of 64K");
}

TEST(Winners, NothingMeasuredIsNoRow) {
  const Figures none({}, {kDefault});
  EXPECT_THAT(pick_winners(none), IsEmpty());
  EXPECT_THAT(merge(none, {}, kLike), IsEmpty());
}

}  // namespace
}  // namespace onehop::cli
