// SPDX-License-Identifier: Apache-2.0
// How ranks wait depends on where all of them may run, not on what each rank sees of itself. A wait for a late rank, or for a
// call of another thread, ends by its deadline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "onehop/onehop.h"

#include "group/state.h"
#include "os/processors.h"
#include "support/errors.h"
#include "support/ranks.h"

namespace onehop {
namespace {

using testing::run_threads;

/// Two processors of this machine, as sets.
class Waiting : public ::testing::Test {
 protected:
  void SetUp() override {
    const os::Processors usable = os::usable_processors();
    const int first = usable.next();
    const int second = usable.next(first + 1);
    if (second < 0) GTEST_SKIP() << "needs two processors";
    CPU_ZERO(&a_);
    CPU_ZERO(&b_);
    CPU_SET(first, &a_);
    CPU_SET(second, &b_);
    CPU_OR(&both_, &a_, &b_);
  }

  static void bind(const cpu_set_t& set) { ASSERT_EQ(::sched_setaffinity(0, sizeof set, &set), 0); }
  static bool spins(const Group& group) { return group.state().local().step_barrier().spin().spins(); }

  /// Ranks that are threads, each bound to processors before it joins.
  template <class Body>
  static void run_bound(const std::vector<cpu_set_t>& sets, const Body& body) {
    const std::shared_ptr<Store> store = memory_store();
    run_threads(static_cast<int>(sets.size()), [&](Rank rank) {
      bind(sets[static_cast<std::size_t>(rank.value)]);
      Group group = Group::join(store, {.rank = rank, .size = static_cast<int>(sets.size())});
      body(group);
    });
  }

  cpu_set_t a_{};
  cpu_set_t b_{};
  cpu_set_t both_{};
};

TEST_F(Waiting, RanksThatAreBoundToAProcessorEachSpin) {
  run_bound({a_, b_}, [](Group& group) { EXPECT_TRUE(spins(group)); });
}

TEST_F(Waiting, RanksThatShareAProcessorDoNotSpin) {
  run_bound({b_, b_}, [](Group& group) { EXPECT_FALSE(spins(group)); });
  run_bound({both_, a_, a_}, [](Group& group) { EXPECT_FALSE(spins(group)); });
}

TEST_F(Waiting, RanksThatNobodyBoundSpinWhenThereIsAProcessorForEach) {
  run_bound({both_, both_}, [](Group& group) { EXPECT_TRUE(spins(group)); });
  run_bound({both_, both_, both_}, [](Group& group) { EXPECT_FALSE(spins(group)); });
}

TEST_F(Waiting, ABoundRankAndAFreeOneSpin) {
  run_bound({both_, a_}, [](Group& group) { EXPECT_TRUE(spins(group)); });
}

TEST_F(Waiting, OneRankByItselfSpinsOnItsProcessor) {
  run_bound({a_}, [](Group& group) { EXPECT_TRUE(spins(group)); });
}

TEST_F(Waiting, ASubGroupLooksAtItsOwnMembers) {
  run_bound({a_, a_, b_}, [](Group& group) {
    EXPECT_FALSE(spins(group));
    const std::optional<Group> apart = group.split(group.rank() == Rank{1} ? -1 : 0);
    EXPECT_TRUE(!apart || spins(*apart));
    const std::optional<Group> together = group.split(group.rank() == Rank{2} ? -1 : 0);
    EXPECT_FALSE(together && spins(*together));
  });
}

TEST_F(Waiting, ASubGroupLooksAtWhereItsMembersRunNow) {
  run_bound({a_, a_}, [&](Group& group) {
    EXPECT_FALSE(spins(group));
    if (group.rank() == Rank{1}) bind(b_);
    const std::optional<Group> again = group.split(0);
    EXPECT_TRUE(again && spins(*again));
  });
}

TEST_F(Waiting, ProcessesHearOfEachOthersProcessors) {
  const testing::TempDir directory;
  for (const bool apart : {true, false}) {
    testing::Processes ranks(2, [&](Rank rank) -> std::string {
      bind(apart && rank == Rank{1} ? b_ : a_);
      const Group group = Group::join(file_store(directory.path()), {.rank = rank, .size = 2});
      return spins(group) ? "spins" : "yields";
    });
    for (const testing::Exit& exit : ranks.wait(std::chrono::seconds{60}))
      EXPECT_EQ(exit.text, apart ? "spins" : "yields");
  }
}

/// Ranks 0 and 1 of a group; rank 0 has waited in vain for rank 1 in `call`.
class LateRank : public ::testing::Test {
 protected:
  using Call = std::function<void(Group&)>;
  /// Of the calls only: to form a group may take longer.
  static constexpr Duration kTimeout{50};

  static void barrier(Group& group) { group.barrier(kTimeout); }
  static Call reduce(std::size_t count) {
    return [count](Group& group) {
      std::vector<float> data(count, 1);
      (void)all_reduce(group, data.data(), data.data(), count, DType::f32, ReduceOp::sum, {},
                       {.algorithm = {}, .timeout = kTimeout});
    };
  }
  static Error error_of(const Call& call, Group& group) {
    return testing::error_of([&] { call(group); });
  }
  void expect_no_success(const Call& in_time, const Call& late) {
    std::vector<Group> groups = Group::join_local({DeviceId::host, DeviceId::host});
    const Error first = error_of(in_time, groups[0]);
    EXPECT_EQ(first.code(), ErrorCode::timeout) << first.what();
    EXPECT_EQ(first.origin(), Rank{1}) << first.what();
    for (int i = 0; i < 2; ++i) {
      const Error second = error_of(late, groups[1]);
      EXPECT_EQ(second.message(), first.message());
      EXPECT_EQ(second.origin(), Rank{1});
    }
  }
};

TEST_F(LateRank, DoesNotSucceedAlone) {
  for (const std::size_t count : {1, 1000, 1'000'000}) expect_no_success(reduce(count), reduce(count));
  expect_no_success(barrier, barrier);
}

TEST_F(LateRank, OfAnotherCallHearsOfTheFailureAndNotOfTheDifference) {
  expect_no_success(reduce(1000), barrier);
  expect_no_success(barrier, reduce(1000));
  expect_no_success(reduce(1000), reduce(1001));
}

// A call waits for its turn among the threads of its rank, but no longer than its own deadline.
TEST(Turns, ACallEndsByItsDeadlineWhileAnotherThreadsCallGoesOn) {
  testing::run_thread_group(2, [](Group& group) {
    group.barrier();
    if (group.rank() == Rank{1}) {
      // Never makes the barrier call, but learns how it ends.
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{20};
      while (std::chrono::steady_clock::now() < end) {
        try {
          group.check();
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::timeout);
          return;
        }
        std::this_thread::yield();
      }
      ADD_FAILURE() << "heard of nothing";
      return;
    }
    std::atomic<bool> waits{false};
    std::thread slow([&] {
      waits = true;
      EXPECT_THROW(group.barrier(std::chrono::seconds{20}), Error);
    });
    while (!waits) std::this_thread::yield();
    float one = 1;
    const auto began = std::chrono::steady_clock::now();
    const Error error = testing::error_of([&] {
      (void)all_reduce(group, &one, &one, 1, DType::f32, ReduceOp::sum, {},
                       {.algorithm = {}, .timeout = std::chrono::milliseconds{300}});
    });
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds{10});
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    slow.join();
  });
}

}  // namespace
}  // namespace onehop
