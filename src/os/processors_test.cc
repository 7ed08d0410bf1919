// SPDX-License-Identifier: Apache-2.0
#include "os/processors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <initializer_list>
#include <ostream>
#include <thread>
#include <vector>

namespace onehop::os {
namespace {

using ::testing::ElementsAre;

Processors set_of(std::initializer_list<int> numbers) {
  Processors set;
  for (const int each : numbers) set.add(each);
  return set;
}

Processors range(int count) {
  Processors set;
  for (int each = 0; each < count; ++each) set.add(each);
  return set;
}

std::vector<int> members_of(const Processors& set) {
  std::vector<int> members;
  for (int each = set.next(); each >= 0; each = set.next(each + 1)) members.push_back(each);
  return members;
}

TEST(Processors, AreVisitedInTheirOrderWhereverTheyLie) {
  EXPECT_THAT(members_of({}), ElementsAre());
  EXPECT_THAT(members_of(set_of({8191, 0, 64, 63, 1023, 1024})), ElementsAre(0, 63, 64, 1023, 1024, 8191));
  EXPECT_EQ(set_of({8191, 0, 64}).count(), 3);
  EXPECT_EQ(Processors{}.count(), 0);
}

TEST(Processors, UsableOnesAreThoseTheCallingThreadIsBoundTo) {
  const int last = members_of(usable_processors()).back();
  std::thread bound([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_THAT(members_of(usable_processors()), ElementsAre(last));
  });
  bound.join();
}

struct Case {
  const char* name;
  std::vector<Processors> ranks;
  bool fits;
};
void PrintTo(const Case& each, std::ostream* out) {
  *out << each.name;
}

class CanRunAtOnce : public ::testing::TestWithParam<Case> {};

TEST_P(CanRunAtOnce, IsWhetherEveryRankCanHaveAProcessorOfItsOwn) {
  EXPECT_EQ(can_run_at_once(GetParam().ranks), GetParam().fits);
}

const Case kCases[] = {
    {"NoRank", {}, true},
    {"OneRankOnOne", {set_of({5})}, true},
    {"OneRankOnNone", {set_of({})}, false},
    {"EachBoundToItsOwn", {set_of({0}), set_of({1})}, true},
    {"BothBoundToOne", {set_of({1}), set_of({1})}, false},
    {"AsManyAsProcessors", {range(2), range(2)}, true},
    {"OneMoreThanProcessors", {range(2), range(2), range(2)}, false},
    {"TwoShareOneAlthoughThereAreEnoughInAll", {set_of({0}), set_of({0}), range(4)}, false},
    {"TheFreeOneMakesRoomForTheBoundOne", {range(2), set_of({0})}, true},
    {"ManyMoveForTheLast", {range(2), set_of({1, 2}), set_of({2, 3}), set_of({0}), set_of({1})}, false},
    {"ManyMoveAndAllFit", {range(2), set_of({1, 2}), set_of({2, 3}), set_of({0})}, true},
    {"ThreeOnTwoOfANode", {set_of({4, 5}), set_of({4, 5}), set_of({0, 1}), set_of({4, 5})}, false},
    {"SixtyFourAnywhere", std::vector<Processors>(64, range(Processors::kMax)), true},
    {"SixtyFourOnSixtyFour", std::vector<Processors>(64, range(64)), true},
    {"SixtyFourOnSixtyThree", std::vector<Processors>(64, range(63)), false},
};

INSTANTIATE_TEST_SUITE_P(Ranks, CanRunAtOnce, ::testing::ValuesIn(kCases),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace onehop::os
