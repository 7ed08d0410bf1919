// SPDX-License-Identifier: Apache-2.0
// Promises C and D: what a crash leaves behind. All ranks of a job are killed with SIGKILL at every phase of
// joining and working. Only the private directories of ranks that were still joining remain, and the keys in
// the caller's store. The next job over the same store and directory succeeds at once and removes the
// directories. Besides, a process that creates and destroys a thousand groups leaks nothing.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>

#include "fault/world.h"
#include "support/ranks.h"

namespace onehop::fault::leftovers_test {
namespace {

using std::chrono::seconds;
using testing::Footprint;
using testing::footprint;
using testing::TempDir;

/// Shared memory in use on this machine, in MiB.
double shared_mib() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  double kib = 0;
  for (std::string rest; file >> name >> kib; std::getline(file, rest)) {
    if (name == "Shmem:") return kib / 1024;
  }
  return -1;
}

/// Waits until the process has stopped, or waits for others that have. True once `rank` was seen stopped.
bool wait_for_stop(pid_t pid) {
  int status = 0;
  return ::waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status);
}

void join_and_work(const std::string& store, Rank rank, int size, std::size_t bytes) {
  Group group = Group::join(file_store(store),
                            {.rank = rank, .size = size, .timeout = seconds{20}, .scratch_bytes = 1 << 20});
  const SymmetricBuffer buffer = group.allocate(bytes);
  group.barrier();
  check_all_reduce(group);
}

TEST(Leftovers, NothingIsLeftWhenEveryRankIsKilledAtAnyPhase) {
  const TempDir base;
  ASSERT_EQ(::setenv("ONEHOP_RUNTIME_DIR", base.path().c_str(), 1), 0);
  constexpr int kRanks = 3;
  constexpr std::size_t kBytes = 64 << 20;
  // The rank that stops itself at this point; the others then wait for it somewhere.
  const std::vector<std::pair<std::string, int>> phases = {
      {"prepare", 1},        {"announce", 2}, {"offer", 0},    {"ack", 1},
      {"connect", 1},        {"connect", 2},  {"allocate", 0}, {"map", 1},
      {"allocate#2", 2},     {"map#2", 0},    {"barrier", 1},  {"all_reduce", 2},
      {"all_reduce.data", 0}};
  std::vector<double> restarts;
  std::size_t most_left = 0;
  double most_held = 0;
  const TempDir store;  // shared by all jobs: the keys of every crash stay in it
  for (const auto& phase : phases) {
    const std::string& point = phase.first;
    const int stopped = phase.second;
    SCOPED_TRACE(fmt::format("all killed while rank {} is at {}", stopped, point));
    const double before = shared_mib();
    {
      World world(kRanks, [&](World& self, Rank rank) {
        if (rank.value == stopped) arm_fault(point, rank, "stop", self.card(rank));
        join_and_work(store.path(), rank, kRanks, kBytes);
      });
      ASSERT_TRUE(wait_for_stop(world.pid(Rank{stopped})));
      most_held = std::max(most_held, shared_mib() - before);
      for (Rank r{0}; r.value < kRanks; ++r.value) ASSERT_EQ(::kill(world.pid(r), SIGKILL), 0);
      ASSERT_TRUE(world.finish(seconds{10}));
    }
    const std::vector<std::string> left = entries_of(base.path());
    const auto directories = std::count_if(left.begin(), left.end(), [](const std::string& name) {
      return name.find('/') == std::string::npos;
    });
    EXPECT_LE(directories, kRanks) << "at most one private directory per killed rank";
    most_left = std::max(most_left, static_cast<std::size_t>(directories));

    // Run the same job again, over the keys that the crash left in the store.
    const std::int64_t start = now_ns();
    World again(kRanks, [&](World& self, Rank rank) {
      self.card(rank).attempts[0].run([&] { join_and_work(store.path(), rank, kRanks, 4096); });
    });
    EXPECT_TRUE(again.finish(seconds{30}));
    restarts.push_back(static_cast<double>(now_ns() - start) / 1e6);
    for (Rank r{0}; r.value < kRanks; ++r.value) {
      EXPECT_EQ(again.card(r).attempts[0].state.load(), Attempt::succeeded)
          << again.card(r).attempts[0].text();
    }
    EXPECT_LT(restarts.back(), 5000);
    EXPECT_TRUE(entries_of(base.path()).empty()) << "the next start did not reclaim everything";
    // Other programs use shared memory, too: the test is that three times 64 MiB came and went.
    for (int look = 0; shared_mib() - before > 96 && look < 50; ++look) (void)::usleep(20'000);
    EXPECT_LT(shared_mib() - before, 96);
  }
  print_spread(
      fmt::format("promise C, restart over a crashed run's store and directories, {} crashes", phases.size()),
      Spread(restarts));
  fmt::print(
      "promise C: at most {} private directories after a crash of {} ranks, none after the next start; "
      "shared memory rose by up to {:.0f} MiB and came back\n",
      most_left, kRanks, most_held);
  ASSERT_EQ(::unsetenv("ONEHOP_RUNTIME_DIR"), 0);
}

// The keys that a crash leaves behind when every rank is at the same point.
TEST(Leftovers, JoiningSucceedsOverTheKeysOfARunThatDiedAtEachStepOfJoining) {
  const TempDir store;
  std::vector<double> joins;
  for (const char* point : {"prepare", "announce", "ack", "connect", "allocate", "map", "barrier"}) {
    for (const int ranks : {2, 4, 3}) {
      if (kSanitized && ranks != 3) continue;
      SCOPED_TRACE(fmt::format("{} ranks killed at {}", ranks, point));
      World crash(ranks, [&](World& self, Rank rank) {
        // Only the other ranks reach `ack`, the answer to rank 0's offer. Rank 0 ends once they are dead.
        arm_fault(point, rank, "kill", self.card(rank));
        self.card(rank).attempts[0].run([&] {
          Group group =
              Group::join(file_store(store.path()),
                          {.rank = rank, .size = ranks, .timeout = Duration{300}, .scratch_bytes = 1 << 20});
          group.barrier();
        });
      });
      ASSERT_TRUE(crash.finish(seconds{10}));
      const std::int64_t start = now_ns();
      World again(ranks, [&](World& self, Rank rank) {
        self.card(rank).attempts[0].run([&] { join_and_work(store.path(), rank, ranks, 4096); });
      });
      EXPECT_TRUE(again.finish(seconds{30}));
      joins.push_back(static_cast<double>(now_ns() - start) / 1e6);
      for (Rank r{0}; r.value < ranks; ++r.value) {
        EXPECT_EQ(again.card(r).attempts[0].state.load(), Attempt::succeeded)
            << again.card(r).attempts[0].text();
      }
    }
  }
  print_spread("stale store: start to end of a job over a crashed run's keys", Spread(joins));
  EXPECT_LT(Spread(joins).max(), 5000);
}

TEST(Leftovers, AThousandGroupsWithBuffersLeaveNoTraceInTheirProcesses) {
  const int cycles = kSanitized ? 60 : 1000;
  const TempDir base;
  const TempDir store;
  ASSERT_EQ(::setenv("ONEHOP_RUNTIME_DIR", base.path().c_str(), 1), 0);
  World world(2, [&](World& self, Rank rank) {
    Card& card = self.card(rank);
    card.attempts[0].run([&] {
      const std::shared_ptr<Store> shared = file_store(store.path());
      Footprint before;
      for (int i = 0; i < cycles; ++i) {
        if (i == cycles / 10) before = footprint();
        Group group =
            Group::join(shared, {.rank = rank, .size = 2, .timeout = seconds{20}, .scratch_bytes = 64 << 10});
        const SymmetricBuffer buffer = group.allocate(8192);
        buffer.barrier(0, seconds{20});
        std::vector<float> data(100, 1);
        all_reduce(group, std::span(data));
      }
      const Footprint after = footprint();
      card.figures = {static_cast<double>(after.descriptors - before.descriptors),
                      static_cast<double>(after.threads - before.threads),
                      static_cast<double>(after.mappings - before.mappings),
                      static_cast<double>(after.address_space) - static_cast<double>(before.address_space)};
    });
  });
  ASSERT_TRUE(world.finish(seconds{100}));
  for (Rank r{0}; r.value < 2; ++r.value) {
    const Card& card = world.card(r);
    ASSERT_EQ(card.attempts[0].state.load(), Attempt::succeeded) << card.attempts[0].text();
    fmt::print(
        "promise D, {} cycles on rank {}: descriptors {:+.0f}, threads {:+.0f}, mappings {:+.0f}, address "
        "space {:+.0f} "
        "bytes, {:.2f} ms per cycle\n",
        cycles, r.value, card.figures[0], card.figures[1], card.figures[2], card.figures[3],
        card.attempts[0].call_ms() / cycles);
    EXPECT_EQ(card.figures[0], 0);
    EXPECT_EQ(card.figures[1], 0);
    if (!kSanitized) {  // sanitizers map memory as they like
      EXPECT_LE(card.figures[2], 0);
      EXPECT_LE(card.figures[3], 256 << 10) << "more than an extension of the heap";
    }
  }
  EXPECT_TRUE(entries_of(base.path()).empty());
  const std::vector<std::string> keys = entries_of(store.path());
  EXPECT_LE(keys.size(), 2U) << "keys pile up in the store: " << keys.size();
  ASSERT_EQ(::unsetenv("ONEHOP_RUNTIME_DIR"), 0);
}

}  // namespace
}  // namespace onehop::fault::leftovers_test
