// SPDX-License-Identifier: Apache-2.0
// Which rank the others name when joining fails: the one that makes no progress, whatever it left in the
// store, and never one that joined and gave up.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "fault/world.h"
#include "group/messages.h"
#include "support/ranks.h"

namespace onehop::fault::joining_test {
namespace {

using std::chrono::seconds;
using testing::TempDir;

constexpr int kRanks = 5;

struct Case {
  const char* name;
  int missing;                 ///< the rank that all others must name
  const char* point;           ///< where it fails; nullptr: it never joins
  const char* action;          ///< how it fails
  std::vector<int> late = {};  ///< ranks that join after it has failed
};

const Case kCases[] = {
    {"rank 0 never comes", 0, nullptr, nullptr},
    {"rank 0 is killed once announced", 0, "announced", "kill", {1, 2, 3, 4}},
    {"rank 0 is stopped once announced", 0, "announced", "stop", {1, 2, 3, 4}},
    {"rank 0 is killed after its offer", 0, "offer", "kill"},
    {"rank 0 is killed while it waits for rank 4", 0, "waiting#2", "kill", {4}},
    {"rank 2 never comes", 2, nullptr, nullptr},
    {"rank 2 is killed once announced", 2, "announced", "kill"},
    {"rank 2 is stopped once announced", 2, "announced", "stop"},
    {"rank 2 is killed after its answer", 2, "ack", "kill"},
};

/// Leaves the keys of an earlier run, all of whose ranks were killed.
void leave_an_earlier_run(Store& store) {
  Offer offer{.id = os::random_id(), .nonces = {}};
  for (int r = 0; r < kRanks; ++r) {
    offer.nonces.push_back(os::random_id());
    store.set(fmt::format("onehop/world/announce/{}", r),
              encode(Announce{.nonce = offer.nonces.back(), .size = kRanks}));
  }
  store.set("onehop/world/offer", encode(offer));
  store.set("onehop/world/waiting",
            encode(Waiting{.nonce = offer.nonces[0], .beat = 3, .size = kRanks, .ranks = {1, 3}}));
}

struct Join {
  Join(const Case& what, unsigned seed, bool leftovers) : which(&what) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> pick(800, 1500);
    for (Duration& timeout : timeouts) timeout = Duration{pick(random)};
    if (leftovers) leave_an_earlier_run(*file_store(directory.path()));
    world.emplace(kRanks, [&, this](World& self, Rank rank) { live(self, rank); });
  }

  void live(World& self, Rank rank) {
    const std::shared_ptr<Store> store = file_store(directory.path());
    Card& card = self.card(rank);
    if (rank.value == which->missing) {
      if (which->point == nullptr) return;
      arm_fault(which->point, rank, which->action, card);
    } else if (std::count(which->late.begin(), which->late.end(), rank.value) != 0) {
      const std::atomic<std::int64_t>& struck = self.card(Rank{which->missing}).struck_ns;
      while (struck.load() == 0) std::this_thread::yield();
    }
    card.attempts[0].run([&] {
      const Group group = Group::join(store, {.rank = rank,
                                              .size = kRanks,
                                              .timeout = timeouts[static_cast<std::size_t>(rank.value)],
                                              .scratch_bytes = 1 << 20});
    });
    if (rank.value != which->missing) self.raise(0);
  }

  void finish() {
    EXPECT_TRUE(world->await(0, kRanks - 1, seconds{20}));
    (void)::kill(world->pid(Rank{which->missing}), SIGKILL);
    EXPECT_TRUE(world->finish(seconds{20}));
  }

  void judge() {
    for (Rank r{0}; r.value < kRanks; ++r.value) {
      if (r.value == which->missing) continue;
      const Attempt& attempt = world->card(r).attempts[0];
      EXPECT_EQ(attempt.state.load(), Attempt::failed) << "rank " << r.value;
      EXPECT_EQ(attempt.origin, which->missing) << "rank " << r.value << ": " << attempt.text();
      EXPECT_THAT(attempt.text(), ::testing::HasSubstr(fmt::format("rank {} ", which->missing)));
      const Duration timeout = timeouts[static_cast<std::size_t>(r.value)];
      EXPECT_LE(attempt.call_ms(), static_cast<double>(timeout.count()) + 100 + world->lateness_ms());
    }
  }

  const Case* which;
  std::array<Duration, kRanks> timeouts{};
  TempDir directory;
  std::optional<World> world;
};

class Joining : public ::testing::TestWithParam<bool> {};

TEST_P(Joining, EveryRankNamesTheOneThatMakesNoProgress) {
  constexpr double kBusyMs = 100;
  for (const unsigned seed : {1U, 2U}) {
    std::vector<std::unique_ptr<Join>> joins;
    for (const Case& each : kCases) joins.push_back(std::make_unique<Join>(each, seed, GetParam()));
    for (std::unique_ptr<Join>& join : joins) {
      SCOPED_TRACE(fmt::format("{}, seed {}", join->which->name, seed));
      join->finish();
      // Failures on a busy machine prove little, since ranks may be too late for each other.
      for (int again = 0; again < 3 && join->world->lateness_ms() > kBusyMs; ++again) {
        join = std::make_unique<Join>(*join->which, seed, GetParam());
        join->finish();
      }
      join->judge();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Store, Joining, ::testing::Bool(),
                         [](const auto& leftovers) { return leftovers.param ? "WithLeftovers" : "Fresh"; });

}  // namespace
}  // namespace onehop::fault::joining_test
