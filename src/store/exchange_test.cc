// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "store/store_test_util.h"

namespace onehop {
namespace {

using namespace std::chrono_literals;

/// A memory store that tracks its remaining keys.
struct CountedStore {
  CountedStore() {
    store = callback_store(
        {.set =
             [this](auto key, auto value, Duration timeout) {
               remember(key);
               inner->set(key, value, timeout);
             },
         .get_for = [this](auto key, Duration timeout) { return inner->get_for(key, timeout); },
         .add =
             [this](auto key, auto delta, Duration timeout) {
               remember(key);
               return inner->add(key, delta, timeout);
             },
         .compare_set =
             [this](auto key, auto expected, auto desired, Duration timeout) {
               remember(key);
               return inner->compare_set(key, expected, desired, timeout);
             },
         .delete_key =
             [this](auto key, Duration timeout) {
               const std::lock_guard lock(mutex);
               keys.erase(std::string(key));
               return inner->delete_key(key, timeout);
             },
         .description = "counted store"});
  }
  void remember(std::string_view key) {
    const std::lock_guard lock(mutex);
    keys.emplace(key);
  }

  std::shared_ptr<Store> inner = memory_store();
  std::shared_ptr<Store> store;
  std::mutex mutex;
  std::set<std::string> keys;
};

class StoreExchangeOf : public ::testing::TestWithParam<int> {
 protected:
  CountedStore counted_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, StoreExchangeOf, ::testing::Values(1, 2, 3, 8),
                         [](const auto& ranks) { return std::to_string(ranks.param); });

TEST_P(StoreExchangeOf, AllGatherReturnsEveryPayloadInRankOrderAndLeavesNoKeys) {
  const int size = GetParam();
  run_threads(size, [&](int rank) {
    StoreExchange exchange(counted_.store, "p", Rank{rank}, size);
    for (int round = 0; round < 5; ++round) {
      // Payloads of different sizes, some empty.
      const std::string mine(static_cast<std::size_t>(rank + round) % 4, static_cast<char>('a' + rank));
      const std::vector<std::string> all = exchange.all_gather(mine, 20s);
      ASSERT_EQ(all.size(), static_cast<std::size_t>(size));
      for (int r = 0; r < size; ++r) {
        EXPECT_EQ(all[static_cast<std::size_t>(r)],
                  std::string(static_cast<std::size_t>(r + round) % 4, static_cast<char>('a' + r)));
      }
    }
  });
  EXPECT_THAT(counted_.keys, ::testing::IsEmpty());
}

TEST_P(StoreExchangeOf, BroadcastAndBarrierMixedWithOthersLeaveNoKeys) {
  const int size = GetParam();
  run_threads(size, [&](int rank) {
    StoreExchange exchange(counted_.store, "p", Rank{rank}, size);
    for (int root = 0; root < size; ++root) {
      const std::string expected = "from " + std::to_string(root);
      EXPECT_EQ(exchange.broadcast(rank == root ? expected : std::string("ignored"), Rank{root}, 20s),
                expected);
      exchange.barrier(20s);
      EXPECT_EQ(exchange.broadcast(root * 3, Rank{root}, 20s), root * 3);
      EXPECT_THAT(exchange.all_gather(rank, 20s), ::testing::SizeIs(static_cast<std::size_t>(size)));
    }
  });
  EXPECT_THAT(counted_.keys, ::testing::IsEmpty());
}

TEST(StoreExchange, TypedAllGatherKeepsEveryField) {
  struct Point {
    double x;
    int y;
    int z;
  };
  const std::shared_ptr<Store> store = memory_store();
  run_threads(3, [&](int rank) {
    StoreExchange exchange(store, "typed", Rank{rank}, 3);
    const std::vector<Point> all = exchange.all_gather(Point{rank + 0.5, rank, -rank}, 20s);
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(all[static_cast<std::size_t>(r)].x, r + 0.5);
      EXPECT_EQ(all[static_cast<std::size_t>(r)].z, -r);
    }
  });
}

TEST(StoreExchange, TakesValuesOfFixedSizeOnly) {
  static_assert(StoreValue<int> && StoreValue<double> && StoreValue<std::array<char, 16>>);
  static_assert(!StoreValue<std::vector<int>> && !StoreValue<std::unique_ptr<int>>);
  // Text has separate overloads, which preserve its length.
  static_assert(!StoreValue<std::string> && !StoreValue<const char*>);
}

TEST(StoreExchange, NeverAsksTheStoreForItsOwnValue) {
  const std::shared_ptr<Store> inner = memory_store();
  run_threads(3, [&](int rank) {
    std::vector<std::string> asked;
    const std::shared_ptr<Store> store = callback_store(
        {.set = [&](auto key, auto value, Duration timeout) { inner->set(key, value, timeout); },
         .get_for =
             [&](auto key, Duration timeout) {
               asked.emplace_back(key);
               return inner->get_for(key, timeout);
             },
         .add = [&](auto key, auto delta, Duration timeout) { return inner->add(key, delta, timeout); },
         .compare_set = [&](auto key, auto expected, auto desired,
                            Duration timeout) { return inner->compare_set(key, expected, desired, timeout); },
         .delete_key = [&](auto key, Duration timeout) { return inner->delete_key(key, timeout); },
         .description = "listening store"});
    StoreExchange exchange(store, "p", Rank{rank}, 3);
    EXPECT_THAT(exchange.all_gather(rank, 20s), ::testing::ElementsAre(0, 1, 2));
    EXPECT_EQ(exchange.broadcast(rank, Rank{1}, 20s), 1);
    std::vector<std::string> others;
    for (int r = 0; r < 3; ++r) {
      if (r != rank) others.push_back("p/0/" + std::to_string(r));
    }
    if (rank != 1) others.emplace_back("p/1/1");
    EXPECT_EQ(asked, others);
  });
}

TEST(StoreExchange, NoRankPassesABarrierBeforeAllHaveReachedIt) {
  constexpr int kSize = 4;
  const std::shared_ptr<Store> store = memory_store();
  std::atomic<int> reached = 0;
  run_threads(kSize, [&](int rank) {
    StoreExchange exchange(store, "b", Rank{rank}, kSize);
    for (int round = 1; round <= 10; ++round) {
      ++reached;
      exchange.barrier(20s);
      EXPECT_GE(reached.load(), round * kSize);
    }
  });
}

TEST(StoreExchange, TwoExchangesWithTheirOwnPrefixesShareAStore) {
  const std::shared_ptr<Store> store = memory_store();
  run_threads(2, [&](int rank) {
    StoreExchange red(store, "red", Rank{rank}, 2);
    StoreExchange blue(store, "blue", Rank{1 - rank}, 2);
    EXPECT_THAT(red.all_gather("r" + std::to_string(rank), 20s), ::testing::ElementsAre("r0", "r1"));
    EXPECT_THAT(blue.all_gather("b" + std::to_string(1 - rank), 20s), ::testing::ElementsAre("b0", "b1"));
  });
}

TEST(StoreExchange, AnotherSizeNamesKeyExpectedAndActualSizeAndRankOnEverySide) {
  CountedStore counted;
  run_threads(2, [&](int rank) {
    StoreExchange exchange(counted.store, "p", Rank{rank}, 2);
    try {
      if (rank == 0) {
        (void)exchange.all_gather(std::int32_t{1}, 20s);
      } else {
        (void)exchange.all_gather(std::int64_t{1}, 20s);
      }
      ADD_FAILURE() << "nothing was thrown on rank " << rank;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::protocol);
      EXPECT_EQ(error.origin(), Rank{1 - rank});
      EXPECT_THAT(error.message(), ::testing::HasSubstr(rank == 0 ? "'p/0/1'" : "'p/0/0'"));
      EXPECT_THAT(error.message(), ::testing::HasSubstr(rank == 0 ? "holds 8 bytes, expected 4"
                                                                  : "holds 4 bytes, expected 8"));
    }
    // The ranks' exchanges are still in step.
    EXPECT_THAT(exchange.all_gather(rank, 20s), ::testing::ElementsAre(0, 1));
  });
  EXPECT_THAT(counted.keys, ::testing::IsEmpty());
}

TEST(StoreExchange, ABroadcastOfAnotherSizeFailsOnTheReceiver) {
  const std::shared_ptr<Store> store = memory_store();
  StoreExchange root(store, "p", Rank{0}, 2);
  StoreExchange receiver(store, "p", Rank{1}, 2);
  EXPECT_EQ(root.broadcast(1.5, Rank{0}, 20s), 1.5);
  const std::string message =
      message_of([&] { (void)receiver.broadcast(std::int16_t{0}, Rank{0}, 20s); }, ErrorCode::protocol);
  EXPECT_THAT(message, ::testing::HasSubstr("holds 8 bytes, expected 2"));
}

TEST(StoreExchange, ATimeoutNamesTheMissingRankAndEndsInTime) {
  const std::shared_ptr<Store> store = memory_store();
  run_threads(2, [&](int rank) {
    StoreExchange exchange(store, "p", Rank{rank}, 3);
    const Stopwatch watch;
    try {
      (void)exchange.all_gather("here", 200ms);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::timeout);
      EXPECT_EQ(error.origin(), Rank{2});
      EXPECT_THAT(error.message(), ::testing::StartsWith("rank 2 has not"));
      EXPECT_THAT(error.message(), ::testing::HasSubstr("'p/0/2'"));
      EXPECT_THAT(error.message(), ::testing::HasSubstr("200 ms"));
    }
    EXPECT_LE(watch.elapsed(), 200ms + kPromise + kBusyMachine);
  });
}

TEST(StoreExchange, ASlowRankWithALongerDeadlineStillCompletes) {
  const std::shared_ptr<Store> store = memory_store();
  StoreExchange hasty(store, "p", Rank{0}, 2);
  EXPECT_THROW((void)hasty.all_gather("hasty", 0ms), Error);
  StoreExchange patient(store, "p", Rank{1}, 2);
  EXPECT_THAT(patient.all_gather("patient", 20s), ::testing::ElementsAre("hasty", "patient"));
}

TEST(StoreExchange, RefusesRanksOutsideItsSize) {
  for (const int rank : {-1, 2, 100}) {
    (void)message_of([&] { StoreExchange(memory_store(), "p", Rank{rank}, 2); }, ErrorCode::invalid_argument);
  }
  (void)message_of([&] { StoreExchange(nullptr, "p", Rank{0}, 2); }, ErrorCode::invalid_argument);
  StoreExchange exchange(memory_store(), "p", Rank{0}, 2);
  (void)message_of([&] { (void)exchange.broadcast("x", Rank{2}, 0ms); }, ErrorCode::invalid_argument);
}

TEST(StoreExchange, WorksOverTcpAndFiles) {
  const TemporaryDirectory directory;
  const std::unique_ptr<TcpStoreServer> server = TcpStoreServer::start({});
  run_threads(3, [&](int rank) {
    for (const std::shared_ptr<Store>& store :
         {tcp_store("127.0.0.1", server->port()), file_store(directory.path())}) {
      StoreExchange exchange(store, "p", Rank{rank}, 3);
      for (int round = 0; round < 3; ++round) {
        EXPECT_THAT(exchange.all_gather(rank, 20s), ::testing::ElementsAre(0, 1, 2));
        EXPECT_EQ(exchange.broadcast(round, Rank{1}, 20s), round);
      }
    }
  });
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    left.push_back(entry.path().filename());
  EXPECT_THAT(left, ::testing::ElementsAre("lock"));
}

}  // namespace
}  // namespace onehop
