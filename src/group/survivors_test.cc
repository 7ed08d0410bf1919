// SPDX-License-Identifier: Apache-2.0
#include "group/survivors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <deque>
#include <random>

#include "base/check.h"
#include "support/sanitizers.h"

namespace onehop {
namespace {

/// Ranks whose messages arrive, and which die, in any order: each channel keeps the order of its messages, and a rank
/// that dies has sent a message to some of the others only.
class Schedule {
 public:
  Schedule(int size, std::uint32_t seed)
      : size_(size), random_(seed), ranks_(static_cast<std::size_t>(size)) {
    for (int r = 0; r < size; ++r) {
      os::Id id{};
      id[0] = static_cast<std::uint8_t>(r + 1);
      at(r).survivors.emplace(Rank{r}, size);
      at(r).survivors->propose(id);
      at(r).inboxes.resize(static_cast<std::size_t>(size));
    }
  }

  /// Runs until no rank has anything to do. Before each step a rank dies with this probability, but not the last.
  void run(double death) {
    int idle = 0;
    while (idle < 40 * size_ * size_) {  // a pair of ranks that has something to do is left out with e^-40
      if (chance(death)) kill(pick());
      idle = step(pick()) ? 0 : idle + 1;
    }
  }

  void kill(int r) {
    if (alive() > 1) at(r).dead = true;
  }
  [[nodiscard]] int alive() const {
    int count = 0;
    for (const auto& each : ranks_) count += each.dead ? 0 : 1;
    return count;
  }
  [[nodiscard]] bool dead(int r) { return at(r).dead; }
  [[nodiscard]] const std::optional<SurvivorsMessage>& decision(int r) { return at(r).survivors->decision(); }
  [[nodiscard]] RankSet awaited(int r) { return at(r).survivors->awaited(at(r).gone); }

 private:
  struct Member {
    std::optional<Survivors> survivors;
    std::vector<std::deque<SurvivorsMessage>> inboxes;  ///< [sender]
    RankSet gone = 0;
    bool dead = false;
    std::optional<SurvivorsMessage> sending;
    int next = 0;  ///< the rank to which it is sent next
  };

  Member& at(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  int pick() { return static_cast<int>(random_() % static_cast<unsigned>(size_)); }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }

  /// One thing that rank r does, if it can do any: reads a message or an end, or sends one message to one rank.
  bool step(int r) {
    Member& own = at(r);
    if (own.dead) return false;
    if (own.sending) {
      if (own.next != r) at(own.next).inboxes[static_cast<std::size_t>(r)].push_back(*own.sending);
      if (++own.next == size_) own.sending.reset();
      return true;
    }
    const int from = pick();
    auto& inbox = own.inboxes[static_cast<std::size_t>(from)];
    if (!inbox.empty()) {
      own.survivors->hear(Rank{from}, inbox.front());
      inbox.pop_front();
      return true;
    }
    if (at(from).dead && (own.gone & set_of(Rank{from})) == 0) {
      own.gone |= set_of(Rank{from});
      return true;
    }
    own.sending = own.survivors->next(own.gone);
    own.next = 0;
    return own.sending.has_value();
  }

  int size_;
  std::mt19937 random_;
  std::vector<Member> ranks_;
};

TEST(Survivors, DecideForTheSameSetWhoeverDiesWhenever) {
  int deaths = 0;
  int smaller = 0;
  constexpr std::uint32_t kSchedules = testing::kSanitized ? 4000 : 20000;
  for (std::uint32_t seed = 0; seed < kSchedules; ++seed) {
    const int size = 2 + static_cast<int>(seed % 5);
    Schedule schedule(size, seed);
    schedule.run(seed % 3 == 0 ? 0.002 : 0.03);
    std::optional<SurvivorsMessage> first;
    for (int r = 0; r < size; ++r) {
      if (schedule.dead(r)) continue;
      const std::optional<SurvivorsMessage>& decision = schedule.decision(r);
      ASSERT_TRUE(decision.has_value())
          << "seed " << seed << ": rank " << r << " waits for " << schedule.awaited(r);
      if (!first) first = decision;
      ASSERT_EQ(decision->ranks, first->ranks) << "seed " << seed;
      ASSERT_EQ(decision->id, first->id) << "seed " << seed;
      ASSERT_NE(decision->ranks & set_of(Rank{r}), 0U) << "seed " << seed;
    }
    deaths += size - schedule.alive();
    smaller += std::popcount(first->ranks) < size ? 1 : 0;
  }
  EXPECT_GT(deaths, kSchedules);
  EXPECT_GT(smaller, kSchedules / 4);
}

TEST(Survivors, GoOnAtOnceIfNobodyDies) {
  Schedule schedule(4, 7);
  schedule.run(0);
  for (int r = 0; r < 4; ++r) {
    ASSERT_TRUE(schedule.decision(r).has_value());
    EXPECT_EQ(schedule.decision(r)->ranks, 0b1111U);
    EXPECT_EQ(schedule.decision(r)->id[0], 1) << "the lowest rank's proposal";
  }
}

TEST(Survivors, WaitForARankThatIsAliveAndSilent) {
  Survivors own(Rank{0}, 3);
  ASSERT_TRUE(own.next(0).has_value());
  own.hear(Rank{1}, {.decided = false, .ranks = 0b111, .id = {}});
  EXPECT_EQ(own.next(0), std::nullopt);
  EXPECT_EQ(own.awaited(0), 0b100U);
  const std::optional<SurvivorsMessage> second = own.next(0b100);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->ranks, 0b011U);
  EXPECT_FALSE(second->decided);
}

TEST(Survivors, RefuseSetsThatMakeNoSense) {
  Survivors own(Rank{0}, 3);
  for (const RankSet ranks : {RankSet{0b110}, RankSet{0b101}, RankSet{0b1111}, RankSet{0}}) {
    try {
      own.hear(Rank{1}, {.decided = true, .ranks = ranks, .id = {}});
      ADD_FAILURE() << ranks;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::protocol);
      EXPECT_EQ(error.origin(), Rank{1});
    }
  }
  for (int i = 0; i < 6; ++i) own.hear(Rank{1}, {.decided = false, .ranks = 0b111, .id = {}});
  EXPECT_THROW(own.hear(Rank{1}, {.decided = false, .ranks = 0b111, .id = {}}), Error)
      << "more rounds than deaths";
}

}  // namespace
}  // namespace onehop
