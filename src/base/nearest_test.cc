// SPDX-License-Identifier: Apache-2.0
#include "base/nearest.h"

#include <gtest/gtest.h>

#include <string>

namespace onehop {
namespace {

constexpr std::string_view kWords[] = {"bench", "tune", "topo", "p2p-check", "all-reduce", "all-gather"};

TEST(Nearest, LettersThatAreMissingTooManyWrongOrSwappedCountOnce) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("topo", "topo"), 0u);
  EXPECT_EQ(edit_distance("tpoo", "topo"), 1u);
  EXPECT_EQ(edit_distance("toppo", "topo"), 1u);
  EXPECT_EQ(edit_distance("top", "topo"), 1u);
  EXPECT_EQ(edit_distance("topa", "topo"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(Nearest, FindsWhatWasMeant) {
  EXPECT_EQ(nearest("tpoo", kWords), "topo");
  EXPECT_EQ(nearest("bnech", kWords), "bench");
  EXPECT_EQ(nearest("ALL_REDUCE", kWords), "all-reduce");
  EXPECT_EQ(nearest("p2pcheck", kWords), "p2p-check");
  EXPECT_EQ(nearest("allgahter", kWords), "all-gather");
}

TEST(Nearest, GuessesNothingFromWordsThatAreFarAway) {
  EXPECT_EQ(nearest("", kWords), std::nullopt);
  EXPECT_EQ(nearest("x", kWords), std::nullopt);
  EXPECT_EQ(nearest("compare", kWords), std::nullopt);
  EXPECT_EQ(nearest(std::string(1 << 20, 'b'), kWords), std::nullopt);
}

}  // namespace
}  // namespace onehop
