// SPDX-License-Identifier: Apache-2.0
// Group::shrink with real processes of which some die: before it, at every step of it, and as soon as it has returned.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <random>

#include "fault/world.h"
#include "group/messages.h"
#include "support/ranks.h"

namespace onehop::fault::shrink_test {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

constexpr Duration kTimeout{kSanitized ? 20000 : 10000};

/// The fault that strikes each rank, in the form "point" or "point#visit".
using Plan = std::map<int, std::string>;

enum Figure { kSize, kShrinks, kAlive };
enum Event { kJoined, kGivenUp, kDead };

/// Works in the group until a rank is lost, goes on with the others, and so forth. Ends when `left` ranks are left.
void survive(World& world, Rank rank, int ranks, int left, const Plan& plan, const std::string& store) {
  Card& card = world.card(rank);
  if (const auto fault = plan.find(rank.value); fault != plan.end())
    arm_fault(fault->second, rank, "kill", card);
  Attempt& attempt = card.attempts[0];
  attempt.run([&] {
    Group group = Group::join(file_store(store),
                              {.rank = rank, .size = ranks, .timeout = kTimeout, .scratch_bytes = 1 << 20});
    // A rank that dies while another one is still in `join` ends that join.
    world.raise(kJoined);
    if (!world.await(kJoined, static_cast<std::uint32_t>(ranks), kTimeout))
      throw std::logic_error("a rank has not joined");
    std::vector<Rank> members;  // in the numbers of the first group
    for (int r = 0; r < ranks; ++r) members.emplace_back(r);
    while (group.size() > left) {
      try {
        while (true) check_all_reduce(group);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::peer_lost) throw;
      }
      attempt.begin_call();
      group = group.shrink();
      std::vector<Rank> now;
      for (const Rank each : group.parent_ranks())
        now.push_back(members[static_cast<std::size_t>(each.value)]);
      members = now;
      if (members[static_cast<std::size_t>(group.rank().value)] != rank)
        throw std::logic_error("another rank's place");
      card.figures[kShrinks] += 1;
    }
    check_all_reduce(group);
    group.barrier();
    card.figures[kSize] = group.size();
    for (const Rank each : members) card.figures[kAlive] += static_cast<double>(set_of(each));
  });
}

void expect_survival(int ranks, const Plan& plan) {
  std::string name = fmt::format("{} ranks", ranks);
  for (const auto& [rank, point] : plan) name += fmt::format(", {} dies at {}", rank, point);
  SCOPED_TRACE(name);
  const TempDir store;
  const int left = ranks - static_cast<int>(plan.size());
  World world(ranks, [&](World& self, Rank rank) { survive(self, rank, ranks, left, plan, store.path()); });
  EXPECT_TRUE(world.finish(3 * kTimeout)) << "a process hung";
  RankSet alive = 0;
  for (Rank r{0}; r.value < ranks; ++r.value) alive |= plan.contains(r.value) ? 0 : set_of(r);
  for (Rank r{0}; r.value < ranks; ++r.value) {
    if (plan.contains(r.value)) {
      EXPECT_NE(world.card(r).struck_ns.load(), 0) << "the fault of rank " << r.value << " never struck";
      continue;
    }
    const Card& card = world.card(r);
    EXPECT_EQ(card.attempts[0].state.load(), Attempt::succeeded)
        << "rank " << r.value << ": " << card.attempts[0].text();
    EXPECT_EQ(card.figures[kSize], left) << "rank " << r.value;
    EXPECT_EQ(static_cast<RankSet>(card.figures[kAlive]), alive) << "rank " << r.value;
  }
}

TEST(Shrink, FindsEveryRankThatDied) {
  expect_survival(2, {{0, "all_reduce.data"}});
  expect_survival(3, {{1, "all_reduce"}});
  // The others die when they have heard of the first one: in a smaller group a fault would not find its rank.
  expect_survival(5, {{0, "all_reduce#3"}, {3, "shrink"}});
  expect_survival(6, {{1, "all_reduce.data#2"}, {2, "shrink"}, {5, "shrink"}});
}

/// One rank dies first, another one while the survivors form their group: at each message that it sends, and between
/// the steps.
TEST(Shrink, SurvivesADeathAtEachOfItsSteps) {
  std::vector<std::string> points{"shrink", "shrink.form", "shrink.formed"};
  for (int message = 1; message <= 4; ++message) points.push_back(fmt::format("shrink.send#{}", message));
  for (const std::string& point : points) {
    for (const int victim : {0, 3}) expect_survival(4, {{1, "all_reduce#2"}, {victim, point}});
  }
  // Rank 0 has this number in the new group, too.
  for (const std::string point : {"allocate#2", "map#2"})
    expect_survival(4, {{1, "all_reduce#2"}, {0, point}});
}

TEST(Shrink, SurvivesRandomDeaths) {
  std::mt19937 random(20261126);
  const int rounds = kSanitized ? 10 : 60;
  for (int round = 0; round < rounds; ++round) {
    const int ranks = 3 + static_cast<int>(random() % 4);
    std::vector<int> order(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) order[static_cast<std::size_t>(r)] = r;
    std::shuffle(order.begin(), order.end(), random);
    Plan plan{{order[0], "all_reduce#2"}};
    const auto deaths = 1 + random() % static_cast<unsigned>(ranks - 1);
    for (std::size_t i = 1; i < deaths; ++i) {
      // Every rank sends at least one message; which of them it is decides between many interleavings.
      plan[order[i]] = random() % 4 == 0 ? "shrink.form" : "shrink.send";
    }
    expect_survival(ranks, plan);
  }
}

TEST(Shrink, NamesAStoppedRankAndGoesOnAfterItsEnd) {
  const TempDir store;
  const Rank stopped{1};
  World world(3, [&](World& self, Rank rank) {
    Card& card = self.card(rank);
    if (rank == stopped) arm_fault("all_reduce", rank, "stop", card);
    std::optional<Group> group;
    const auto join = [&] {
      group = Group::join(file_store(store.path()),
                          {.rank = rank, .size = 3, .timeout = kTimeout, .scratch_bytes = 1 << 20});
    };
    card.attempts[0].run([&] {
      join();
      std::vector<float> data(1000);
      all_reduce(*group, std::span(data), ReduceOp::sum, {}, {.timeout = Duration{1000}});
    });
    card.attempts[1].run([&] { group = group->shrink(Duration{1000}); });
    self.raise(kGivenUp);
    (void)self.await(kDead, 1, std::chrono::seconds{20});
    card.attempts[2].run([&] {
      group = group->shrink(kTimeout);
      check_all_reduce(*group);
      group->barrier();
      card.figures[kSize] = group->size();
    });
  });
  ASSERT_TRUE(world.await(kGivenUp, 2, std::chrono::seconds{30}));
  ::kill(world.pid(stopped), SIGKILL);
  world.raise(kDead);
  EXPECT_TRUE(world.finish(3 * kTimeout)) << "a process hung";
  for (const Rank r : {Rank{0}, Rank{2}}) {
    const Card& card = world.card(r);
    EXPECT_EQ(card.attempts[0].error(), ErrorCode::timeout) << card.attempts[0].text();
    EXPECT_EQ(card.attempts[1].error(), ErrorCode::timeout) << card.attempts[1].text();
    EXPECT_EQ(card.attempts[1].origin, stopped.value) << card.attempts[1].text();
    EXPECT_THAT(card.attempts[1].text(), HasSubstr("shrink: rank"));
    EXPECT_LE(card.attempts[1].call_ms(), 1100 + world.most_late_ms());
    EXPECT_EQ(card.attempts[2].state.load(), Attempt::succeeded) << card.attempts[2].text();
    EXPECT_EQ(card.figures[kSize], 2);
  }
}

enum class Then { shrink, abort };
enum Outcome { kShrunk, kAborted };
constexpr Rank kHasty{0};
constexpr Rank kWaiting{1};
constexpr Rank kSlow{2};

/// Three ranks shrink a group of which nobody has died. The hasty one ends the group that they get at once. The slow one
/// pauses before message number `pause` of those that it sends in all-gathers. It tells the hasty rank first, and the
/// waiting one after the pause. Returns how the waiting rank's shrink ended; nullopt: there was no pause.
std::optional<Outcome> end_the_survivors_group(Then then, int pause) {
  SCOPED_TRACE(fmt::format("rank {} pauses before message {}", kSlow.value, pause));
  const TempDir store;
  World world(3, [&](World& self, Rank rank) {
    Card& card = self.card(rank);
    if (rank == kSlow) arm_fault(fmt::format("all_gather.send#{}", pause), rank, "delay", card);
    card.attempts[0].run([&] {
      Group group = Group::join(file_store(store.path()),
                                {.rank = rank, .size = 3, .timeout = kTimeout, .scratch_bytes = 1 << 20});
      self.raise(kJoined);
      if (!self.await(kJoined, 3, kTimeout)) throw std::logic_error("a rank did not join");
      card.attempts[1].run([&] { group = group.shrink(); });
      if (rank == kHasty) {
        if (then == Then::abort) group.abort("enough");
        group = group.shrink();
      }
      for (bool works = false; !works;) {
        try {
          check_all_reduce(group);
          group.barrier();
          works = true;
        } catch (const Error& error) {
          if (error.code() != ErrorCode::aborted) throw;
          group = group.shrink();
        }
      }
      card.figures[kSize] = group.size();
      for (const Rank each : group.parent_ranks()) card.figures[kAlive] += static_cast<double>(set_of(each));
    });
  });
  EXPECT_TRUE(world.finish(3 * kTimeout)) << "a process hung";
  for (Rank r{0}; r.value < 3; ++r.value) {
    const Card& card = world.card(r);
    EXPECT_EQ(card.attempts[0].state.load(), Attempt::succeeded) << card.attempts[0].text();
    EXPECT_EQ(card.figures[kSize], 3);
    EXPECT_EQ(static_cast<RankSet>(card.figures[kAlive]), all_ranks(3));
  }
  const Attempt& shrink = world.card(kWaiting).attempts[1];
  if (world.card(kSlow).struck_ns.load() == 0) return std::nullopt;
  if (shrink.state.load() == Attempt::succeeded) return kShrunk;
  EXPECT_EQ(shrink.error(), ErrorCode::aborted) << shrink.text();
  EXPECT_EQ(shrink.origin, kHasty.value);
  EXPECT_THAT(shrink.text(), HasSubstr("aborted the group: enough"));
  return kAborted;
}

/// Where the slow rank must pause so that the waiting one still forms the group when the hasty one ends it. Only an
/// abort shows that.
std::vector<int> pauses_while_forming() {
  std::vector<int> found;
  for (int pause = 1; pause <= 100; ++pause) {
    const std::optional<Outcome> outcome = end_the_survivors_group(Then::abort, pause);
    if (!outcome) return found;
    if (*outcome == kAborted) found.push_back(pause);
  }
  ADD_FAILURE() << "the slow rank always pauses";
  return found;
}

TEST(Shrink, GoesOnIfAnotherRankShrinksTheGroupThatThisOneStillForms) {
  // Others that are later than the pause is long do not find it.
  std::vector<int> pauses;
  for (int tries = 0; tries < 3 && pauses.empty(); ++tries) pauses = pauses_while_forming();
  ASSERT_FALSE(pauses.empty()) << "no user's abort ended shrink";
  for (const int pause : pauses) EXPECT_EQ(end_the_survivors_group(Then::shrink, pause), kShrunk);
}

}  // namespace
}  // namespace onehop::fault::shrink_test
