// SPDX-License-Identifier: Apache-2.0
// libonehop_nccl.so with a library that stands for NCCL: which communicators and calls are carried. That one moves no data, so
// a result shows who made the call. One process per case (ctest), since NCCL is looked for once.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "api.h"
#include "barrier.h"
#include "support/ranks.h"
#include "unique_id.h"

namespace onehop::nccl {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;

constexpr int kTwoRanks = 2;
constexpr DataType kInt{2};
constexpr RedOp kAdd{0};
constexpr int kDefault = 0;  ///< NCCL_SHRINK_DEFAULT

class NcclAcceleration : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::setenv("ONEHOP_NCCL_LIBRARY", ONEHOP_FAKE_NCCL, 1);
    ::setenv("ONEHOP_NCCL_DEVICE", "cpu", 1);
    ::setenv("ONEHOP_NCCL_TIMEOUT", "30", 1);
  }
};

void expect_ok(Result result) {
  EXPECT_EQ(result, Result::success) << last_error();
}

/// How many collectives were forwarded.
int forwarded() {
  void* const handle = ::dlopen(ONEHOP_FAKE_NCCL, RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(handle, nullptr);
  return reinterpret_cast<int (*)()>(::dlsym(handle, "fake_nccl_collectives"))();
}

int sum_of_ones(const Api& api, Comm comm, RedOp op = kAdd) {
  int data = 1;
  expect_ok(api.all_reduce(&data, &data, 1, kInt, op, comm, nullptr));
  return data;
}

/// The sum of all ranks, which are of this thread, for each; those without a communicator keep their number.
template <std::size_t kRanks>
void add_up(const Api& api, const std::array<Comm, kRanks>& comms, std::array<int, kRanks>& data) {
  expect_ok(api.group_start());
  for (std::size_t i = 0; i < kRanks; ++i) {
    if (comms[i] != nullptr) expect_ok(api.all_reduce(&data[i], &data[i], 1, kInt, kAdd, comms[i], nullptr));
  }
  expect_ok(api.group_end());
}

/// Runs `body` on two threads with a rank each. `configs` by rank.
void on_two_threads(const std::array<const Config*, kTwoRanks>& configs,
                    const std::function<void(const Api&, Comm, int)>& body) {
  const Api api;
  UniqueId id{};
  expect_ok(api.get_unique_id(&id));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kTwoRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Comm comm = nullptr;
      const Config* const config = configs[static_cast<std::size_t>(rank)];
      expect_ok(config != nullptr ? api.init_rank_config(&comm, kTwoRanks, id, rank, config)
                                  : api.init_rank(&comm, kTwoRanks, id, rank));
      if (comm == nullptr) return;
      body(api, comm, rank);
      expect_ok(api.finalize(comm));
      expect_ok(api.destroy(comm));
    });
  }
  for (std::thread& each : threads) each.join();
}

TEST_F(NcclAcceleration, ACommunicatorOfOneMachineIsCarriedOnTheHandleOfNccl) {
  on_two_threads({}, [](const Api& api, Comm comm, int rank) {
    int said = -1;
    expect_ok(api.user_rank(comm, &said));
    EXPECT_EQ(said, rank) << "NCCL reads its own handle";
    EXPECT_EQ(sum_of_ones(api, comm), kTwoRanks);
    Result state = Result::internal_error;
    expect_ok(api.async_error(comm, &state));
    EXPECT_EQ(state, Result::success);
  });
  EXPECT_EQ(forwarded(), 0);
}

TEST_F(NcclAcceleration, WindowsAreThoseOfNcclAndCallsOnThemAreCarried) {
  on_two_threads({}, [](const Api& api, Comm comm, int /*rank*/) {
    int data = 1;
    for (const int flags : {0, kCollSymmetric}) {
      void* window = nullptr;
      expect_ok(api.window_register(comm, &data, sizeof data, &window, flags));
      EXPECT_EQ(window, comm) << "the one that NCCL made";
      expect_ok(api.all_reduce(&data, &data, 1, kInt, kAdd, comm, nullptr));
      expect_ok(api.window_deregister(comm, window));
    }
    EXPECT_EQ(data, 4);
    void* window = nullptr;
    EXPECT_EQ(api.window_register(comm, nullptr, 0, &window, kCollSymmetric), Result::invalid_argument);
  });
  EXPECT_EQ(forwarded(), 0);
}

TEST_F(NcclAcceleration, ACommunicatorThatIsAbortedDuringItsSetUpIsNotCarried) {
  const Api api;
  UniqueId id{};
  expect_ok(api.get_unique_id(&id));
  std::array<Comm, kTwoRanks> comms{};
  std::array<std::promise<void>, kTwoRanks> counted;
  std::promise<void> aborted;
  std::thread first([&] {
    expect_ok(api.group_start());
    expect_ok(api.init_rank(&comms[0], kTwoRanks, id, 0));
    counted[0].set_value();
    counted[1].get_future().wait();
    expect_ok(api.group_end());  // waits for the other rank
  });
  std::thread second([&] {
    expect_ok(api.group_start());
    expect_ok(api.init_rank(&comms[1], kTwoRanks, id, 1));
    counted[1].set_value();
    aborted.get_future().wait();
    expect_ok(api.group_end());
  });
  counted[0].get_future().wait();
  const Address address = find_address(id).value();
  (void)open_store(address, std::chrono::seconds{30})->get(fmt::format("onehop/{}/announce/0", address.name));
  const Comm first_comm = comms[0];
  expect_ok(api.abort(first_comm));
  aborted.set_value();
  first.join();
  second.join();
  int data = 1;
  (void)api.all_reduce(&data, &data, 1, kInt, kAdd, first_comm, nullptr);
  EXPECT_EQ(forwarded(), 1) << "the handle is only NCCL's, which may give it to another communicator";
  expect_ok(api.abort(comms[1]));
}

/// All ranks but the last one of three wait for it to join. Revokes one of them; the last one comes only after the others have
/// ended. Returns the communicators.
std::array<Comm, 3> revoke_one_that_waits(const Api& api, std::size_t revoked) {
  UniqueId id{};
  expect_ok(api.get_unique_id(&id));
  std::array<Comm, 3> comms{};
  std::array<std::promise<void>, 3> counted;
  std::array<std::shared_future<void>, 3> counts;
  for (std::size_t i = 0; i < 3; ++i) counts[i] = counted[i].get_future().share();
  std::promise<void> ended;
  const auto init = [&](std::size_t rank, const std::function<void()>& wait) {
    expect_ok(api.group_start());
    expect_ok(api.init_rank(&comms[rank], 3, id, static_cast<int>(rank)));
    counted[rank].set_value();
    wait();
    expect_ok(api.group_end());
  };
  const auto wait_for_all = [&] {
    for (const auto& each : counts) each.wait();
  };
  std::vector<std::thread> waiting;
  for (const std::size_t rank : {0, 1}) waiting.emplace_back([&, rank] { init(rank, wait_for_all); });
  std::thread last([&] { init(2, [&] { ended.get_future().wait(); }); });
  wait_for_all();
  const Address address = find_address(id).value();
  const auto store = open_store(address, std::chrono::seconds{30});
  (void)store->get(fmt::format("onehop/{}/announce/{}", address.name, revoked));
  expect_ok(api.revoke(comms[revoked], 0));
  for (std::thread& each : waiting) each.join();
  ended.set_value();
  last.join();
  return comms;
}

// Long before their limit of a minute, after which the test would be stopped.
TEST_F(NcclAcceleration, RevokingACommunicatorThatJoinsEndsTheWaitOfAllRanks) {
  const Api api;
  for (const std::size_t revoked : {0, 1}) {
    const std::array<Comm, 3> comms = revoke_one_that_waits(api, revoked);
    const int before = forwarded();
    for (Comm each : comms) EXPECT_EQ(sum_of_ones(api, each), 1);
    EXPECT_EQ(forwarded(), before + 3);
    for (Comm each : comms) expect_ok(api.destroy(each));
  }
}

TEST_F(NcclAcceleration, ACommunicatorThatIsRevokedBeforeItJoinsIsNotCarried) {
  const Api api;
  UniqueId id{};
  expect_ok(api.get_unique_id(&id));
  std::array<Comm, kTwoRanks> comms{};
  expect_ok(api.group_start());
  for (const std::size_t i : {0, 1}) expect_ok(api.init_rank(&comms[i], kTwoRanks, id, static_cast<int>(i)));
  expect_ok(api.revoke(comms[1], 0));
  expect_ok(api.group_end());
  for (Comm each : comms) EXPECT_EQ(sum_of_ones(api, each), 1);
  EXPECT_EQ(forwarded(), kTwoRanks);
  for (Comm each : comms) expect_ok(api.destroy(each));
}

TEST_F(NcclAcceleration, ACommunicatorThatIsRevokedAtAnyTimeIsNotCarriedAfterwards) {
  const Api api;
  for (int i = 0; i < 200; ++i) {
    UniqueId id{};
    expect_ok(api.get_unique_id(&id));
    Comm comm = nullptr;
    expect_ok(api.group_start());
    expect_ok(api.init_rank(&comm, 1, id, 0));
    std::thread revoking([&, handle = comm] {
      std::this_thread::sleep_for(std::chrono::microseconds{5 * i});
      expect_ok(api.revoke(handle, 0));
    });
    expect_ok(api.group_end());
    revoking.join();
    EXPECT_EQ(sum_of_ones(api, comm), 1);
    ASSERT_EQ(forwarded(), i + 1);
    expect_ok(api.destroy(comm));
  }
}

TEST_F(NcclAcceleration, RevokingARankOfInitAllBeforeItJoinsEndsTheWaitOfTheOthers) {
  const Api api;
  std::array<Comm, kTwoRanks> comms{};
  expect_ok(api.group_start());
  expect_ok(api.init_all(comms.data(), kTwoRanks, nullptr));
  expect_ok(api.revoke(comms[1], 0));
  const auto begin = std::chrono::steady_clock::now();
  expect_ok(api.group_end());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{30});  // their limit is a minute
  for (Comm each : comms) EXPECT_EQ(sum_of_ones(api, each), 1);
  EXPECT_EQ(forwarded(), kTwoRanks);
  for (Comm each : comms) expect_ok(api.destroy(each));
}

TEST_F(NcclAcceleration, RanksLeaveNoKeysInTheStore) {
  const Config nonblocking{sizeof(Config), 0, 0, 0};
  const Api api;
  for (const Config* const config : {static_cast<const Config*>(nullptr), &nonblocking}) {
    UniqueId id{};
    expect_ok(api.get_unique_id(&id));
    std::array<Comm, kTwoRanks> comms{};
    expect_ok(api.group_start());
    expect_ok(api.init_rank_config(&comms[0], kTwoRanks, id, 0, config));
    expect_ok(api.init_rank(&comms[1], kTwoRanks, id, 1));
    expect_ok(api.group_end());
    const Address address = find_address(id).value();
    const auto store = open_store(address);
    const std::string group = fmt::format("onehop/{}/", address.name);
    for (const std::string& key :
         {std::string("arrived"), std::string("arrived/0"), std::string("arrived/1"), group + "offer",
          group + "waiting", group + "announce/0", group + "announce/1"})
      EXPECT_EQ(store->compare_set(key, "none", "none"), "none") << key;
    for (Comm each : comms) expect_ok(api.destroy(each));
  }
}

TEST_F(NcclAcceleration, ARankThatCannotBeCarriedForwardsTheCommunicatorOnAllRanks) {
  const Config nonblocking{sizeof(Config), 0, 0, 0};
  on_two_threads({nullptr, &nonblocking},
                 [](const Api& api, Comm comm, int) { EXPECT_EQ(sum_of_ones(api, comm), 1); });
  EXPECT_EQ(forwarded(), kTwoRanks);
}

TEST_F(NcclAcceleration, AReductionOfTheProgramIsCarried) {
  on_two_threads({}, [](const Api& api, Comm comm, int rank) {
    RedOp op{};
    const int factor = 2 + rank;
    expect_ok(api.create_pre_mul_sum(&op, &factor, kInt, Residence::host, comm));
    EXPECT_EQ(sum_of_ones(api, comm, op), 5);
    expect_ok(api.destroy_reduction(op, comm));
  });
  EXPECT_EQ(forwarded(), 0);
}

TEST_F(NcclAcceleration, AnUnknownReductionIsForwardedFromACarriedCommunicator) {
  ::setenv("ONEHOP_LOG", "debug", 1);
  ::testing::internal::CaptureStderr();
  on_two_threads({}, [](const Api& api, Comm comm, int) {
    EXPECT_EQ(sum_of_ones(api, comm, RedOp{5}), 1);
    EXPECT_EQ(sum_of_ones(api, comm), kTwoRanks);
    EXPECT_EQ(sum_of_ones(api, comm), kTwoRanks);
  });
  EXPECT_EQ(forwarded(), kTwoRanks);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("NCCL: rank 1 of 2: 2 calls were carried, 1 forwarded"));
}

TEST_F(NcclAcceleration, CallsWithAConfigurationAreCarriedUnlessItDemandsSomethingOfNccl) {
  on_two_threads({}, [](const Api& api, Comm comm, int) {
    CallConfig config = call_config();
    config.fewest_blocks = 2;
    int data = 1;
    expect_ok(api.all_reduce_config(&data, &data, 1, kInt, kAdd, comm, nullptr, &config));
    EXPECT_EQ(data, kTwoRanks);
    config.algorithms = "ring";
    expect_ok(api.all_reduce_config(&data, &data, 1, kInt, kAdd, comm, nullptr, &config));
    EXPECT_EQ(data, kTwoRanks) << "forwarded: the fake does nothing";
  });
  EXPECT_EQ(forwarded(), kTwoRanks);
}

TEST_F(NcclAcceleration, OneThreadSetsUpAndUsesAllRanksInGroups) {
  const Api api;
  UniqueId id{};
  expect_ok(api.get_unique_id(&id));
  std::array<Comm, 3> comms{};
  const Config config{sizeof(Config), 0, 0, INT_MIN};  // undefined, so blocking
  expect_ok(api.group_start());
  for (int rank = 0; rank < 3; ++rank)
    expect_ok(api.init_rank_config(&comms[static_cast<std::size_t>(rank)], 3, id, rank, &config));
  expect_ok(api.group_end());
  std::array<int, 3> data = {1, 2, 3};
  add_up(api, comms, data);
  EXPECT_THAT(data, Each(6));
  for (Comm each : comms) expect_ok(api.destroy(each));
  EXPECT_EQ(forwarded(), 0);
}

TEST_F(NcclAcceleration, ACommunicatorOfSeveralIdsIsCarried) {
  const Api api;
  std::array<UniqueId, 2> ids{};
  for (UniqueId& each : ids) expect_ok(api.get_unique_id(&each));
  std::array<Comm, 3> comms{};
  const auto init = [&](int rank, int count) {
    return api.init_rank_scalable(&comms[static_cast<std::size_t>(rank)], 3, rank, count, ids.data(),
                                  nullptr);
  };
  EXPECT_EQ(init(0, 0), Result::invalid_argument) << "NCCL's answer";
  expect_ok(api.group_start());
  for (int rank = 0; rank < 3; ++rank) expect_ok(init(rank, 2));
  expect_ok(api.group_end());
  std::array<int, 3> data = {1, 2, 3};
  add_up(api, comms, data);
  EXPECT_THAT(data, Each(6));
  for (Comm each : comms) expect_ok(api.destroy(each));
  EXPECT_EQ(forwarded(), 0);
}

TEST_F(NcclAcceleration, PartsOfACarriedCommunicatorAreCarried) {
  const Api api;
  std::array<Comm, 3> comms{};
  expect_ok(api.init_all(comms.data(), 3, nullptr));
  std::array<Comm, 3> parts{};
  const std::array<int, 3> colors = {0, -1, 0};
  expect_ok(api.group_start());
  for (std::size_t i = 0; i < 3; ++i) expect_ok(api.split(comms[i], colors[i], 0, &parts[i], nullptr));
  expect_ok(api.group_end());
  EXPECT_EQ(parts[1], nullptr);
  std::array<int, 3> data = {1, 2, 4};
  add_up(api, parts, data);
  EXPECT_THAT(data, ElementsAre(5, 2, 5));
  for (const std::size_t i : {0, 2}) expect_ok(api.destroy(parts[i]));
  for (Comm each : comms) expect_ok(api.destroy(each));
  EXPECT_EQ(forwarded(), 0);
}

TEST_F(NcclAcceleration, PartsAreForwardedIfOneRankMayNotWait) {
  const Config nonblocking{sizeof(Config), 0, 0, 0};
  on_two_threads({}, [&](const Api& api, Comm comm, int rank) {
    Comm part = nullptr;
    expect_ok(api.split(comm, 0, 0, &part, rank == 0 ? &nonblocking : nullptr));
    EXPECT_EQ(sum_of_ones(api, part), 1);
    EXPECT_EQ(sum_of_ones(api, comm), kTwoRanks);
    expect_ok(api.destroy(part));
  });
  EXPECT_EQ(forwarded(), kTwoRanks);
}

/// All ranks but one, of this thread, shrink. Returns the new communicators by their ranks in the old one.
std::array<Comm, 3> shrink_in_group(const Api& api, const std::array<Comm, 3>& comms, int excluded,
                                    int flags) {
  std::array<Comm, 3> rest{};
  expect_ok(api.group_start());
  for (std::size_t i = 0; i < 3; ++i) {
    if (static_cast<int>(i) != excluded)
      expect_ok(api.shrink(comms[i], &excluded, 1, &rest[i], nullptr, flags));
  }
  expect_ok(api.group_end());
  return rest;
}

void expect_sums(const Api& api, const std::array<Comm, 3>& comms, const std::array<int, 3>& sums) {
  std::array<int, 3> data = {1, 2, 4};
  add_up(api, comms, data);
  EXPECT_EQ(data, sums);
}

void destroy_all(const Api& api, const std::array<Comm, 3>& comms) {
  for (Comm each : comms) {
    if (each != nullptr) expect_ok(api.destroy(each));
  }
}

TEST_F(NcclAcceleration, RanksThatRemainAreCarriedAndSoIsTheirParent) {
  const Api api;
  std::array<Comm, 3> comms{};
  expect_ok(api.init_all(comms.data(), 3, nullptr));
  const std::array<Comm, 3> first = shrink_in_group(api, comms, 1, kDefault);
  const std::array<Comm, 3> second = shrink_in_group(api, comms, 0, kDefault);
  const std::array<Comm, 3> again = shrink_in_group(api, comms, 1, kDefault);
  expect_sums(api, first, {5, 2, 5});
  expect_sums(api, second, {1, 6, 6});
  expect_sums(api, again, {5, 2, 5});
  expect_sums(api, comms, {7, 7, 7});
  for (const auto& each : {first, second, again, comms}) destroy_all(api, each);
  EXPECT_EQ(forwarded(), 0);
}

TEST_F(NcclAcceleration, ThreadsShrinkWithoutTheExcludedRank) {
  const Api api;
  std::array<Comm, 3> comms{};
  expect_ok(api.init_all(comms.data(), 3, nullptr));
  std::array<Comm, 3> rest{};
  const int excluded = 0;
  std::vector<std::thread> threads;
  for (const std::size_t i : {1, 2})
    threads.emplace_back(
        [&, i] { expect_ok(api.shrink(comms[i], &excluded, 1, &rest[i], nullptr, kDefault)); });
  for (std::thread& each : threads) each.join();
  expect_sums(api, rest, {1, 6, 6});
  for (const auto& each : {rest, comms}) destroy_all(api, each);
  EXPECT_EQ(forwarded(), 0);
}

TEST_F(NcclAcceleration, ShrinkingWithAnAbortEndsTheCallsOfTheParent) {
  const Api api;
  std::array<Comm, 3> comms{};
  expect_ok(api.init_all(comms.data(), 3, nullptr));
  Result result = Result::success;
  int data = 0;
  std::thread waiting([&] { result = api.all_reduce(&data, &data, 1, kInt, kAdd, comms[1], nullptr); });
  const std::array<Comm, 3> rest = shrink_in_group(api, comms, 1, kShrinkAbort);
  waiting.join();
  EXPECT_EQ(result, Result::remote_error);
  expect_sums(api, rest, {5, 2, 5});
  const std::array<Comm, 3> again = shrink_in_group(api, comms, 1, kShrinkAbort);
  expect_sums(api, again, {5, 2, 5});
  EXPECT_EQ(forwarded(), 0);
  for (const auto& each : {rest, again, comms}) destroy_all(api, each);
}

TEST_F(NcclAcceleration, AShrinkThatNcclRefusesLeavesTheCommunicatorAsItWas) {
  on_two_threads({}, [](const Api& api, Comm comm, int) {
    const int nobody = 7;
    const int both[] = {0, 1};
    Comm rest = nullptr;
    EXPECT_EQ(api.shrink(comm, &nobody, 1, &rest, nullptr, kShrinkAbort), Result::invalid_argument);
    EXPECT_EQ(api.shrink(comm, both, 1, nullptr, nullptr, kShrinkAbort), Result::invalid_argument);
    EXPECT_EQ(sum_of_ones(api, comm), kTwoRanks);
  });
  EXPECT_EQ(forwarded(), 0);
}

TEST_F(NcclAcceleration, ARevokeThatNcclRefusesLeavesTheCommunicatorAsItWas) {
  on_two_threads({}, [](const Api& api, Comm comm, int) {
    EXPECT_EQ(api.revoke(comm, 1), Result::invalid_argument);
    EXPECT_EQ(sum_of_ones(api, comm), kTwoRanks);
  });
  EXPECT_EQ(forwarded(), 0);
}

TEST_F(NcclAcceleration, AShrinkThatFailedOnOneRankDoesNotPreventTheNext) {
  const Api api;
  std::array<Comm, 3> comms{};
  expect_ok(api.init_all(comms.data(), 3, nullptr));
  const int excluded = 2;
  Comm failed = nullptr;
  expect_ok(api.group_start());
  expect_ok(api.shrink(comms[0], &excluded, 1, &failed, nullptr, kDefault));
  EXPECT_EQ(api.shrink(comms[1], &excluded, 1, nullptr, nullptr, kDefault), Result::invalid_argument);
  EXPECT_EQ(api.group_end(), Result::invalid_argument);
  const std::array<Comm, 3> rest = shrink_in_group(api, comms, excluded, kDefault);
  expect_sums(api, rest, {3, 3, 4});
  EXPECT_EQ(forwarded(), 0);
  for (const auto& each : {rest, comms}) destroy_all(api, each);
  expect_ok(api.destroy(failed));
}

TEST_F(NcclAcceleration, RanksOfARevokedCommunicatorShrink) {
  const Api api;
  std::array<Comm, 3> comms{};
  expect_ok(api.init_all(comms.data(), 3, nullptr));
  for (Comm each : comms) expect_ok(api.revoke(each, 0));
  const std::array<Comm, 3> rest = shrink_in_group(api, comms, 2, kDefault);
  expect_sums(api, rest, {3, 3, 4});
  EXPECT_EQ(forwarded(), 0);
  for (const auto& each : {rest, comms}) destroy_all(api, each);
}

TEST_F(NcclAcceleration, RanksThatRemainAreForwardedIfOneOfThemMayNotWait) {
  const Api api;
  std::array<Comm, 3> comms{};
  expect_ok(api.init_all(comms.data(), 3, nullptr));
  const Config nonblocking{sizeof(Config), 0, 0, 0};
  const int excluded = 2;
  std::array<Comm, 3> rest{};
  EXPECT_EQ(api.shrink(comms[0], nullptr, 1, &rest[0], nullptr, kDefault), Result::invalid_argument);
  EXPECT_EQ(api.shrink(comms[0], &excluded, -1, &rest[0], nullptr, kDefault), Result::invalid_argument);
  expect_ok(api.group_start());
  expect_ok(api.shrink(comms[0], &excluded, 1, &rest[0], &nonblocking, kDefault));
  expect_ok(api.shrink(comms[1], &excluded, 1, &rest[1], nullptr, kDefault));
  expect_ok(api.group_end());
  expect_sums(api, rest, {1, 2, 4});
  EXPECT_EQ(forwarded(), 2);
  expect_sums(api, comms, {7, 7, 7});
  for (const auto& each : {rest, comms}) destroy_all(api, each);
}

/// As NCCL does, waits for the other ranks: `set_up`, of which NCCL's part does not, in a group.
void set_up_together(const Api& api, Store& store, const char* name, int count,
                     const std::function<void()>& set_up) {
  expect_ok(api.group_start());
  set_up();
  barrier(store, name, count);
  expect_ok(api.group_end());
}

TEST_F(NcclAcceleration, ProcessesGoOnWithoutTheOneThatMadeTheIdAndDied) {
  const testing::TempDir directory;
  testing::Processes ranks(3, [&](Rank rank) {
    const Api api;
    const auto store = file_store(directory.path());
    UniqueId id{};
    if (rank.value == 0) {
      expect_ok(api.get_unique_id(&id));
      store->set("id", {id.bytes, UniqueId::kBytes});
    } else {
      const std::string bytes = store->get("id");
      std::memcpy(id.bytes, bytes.data(), UniqueId::kBytes);
    }
    Comm comm = nullptr;
    set_up_together(api, *store, "set up", 3, [&] { expect_ok(api.init_rank(&comm, 3, id, rank.value)); });
    EXPECT_EQ(sum_of_ones(api, comm), 3);
    barrier(*store, "reduced", 3);  // no rank is in that call any more
    if (rank.value == 0) ::raise(SIGKILL);
    int data = 1;
    EXPECT_EQ(api.all_reduce(&data, &data, 1, kInt, kAdd, comm, nullptr), Result::remote_error);
    const int excluded = 0;
    Comm rest = nullptr;
    set_up_together(api, *store, "shrunk", 2,
                    [&] { expect_ok(api.shrink(comm, &excluded, 1, &rest, nullptr, kShrinkAbort)); });
    EXPECT_EQ(sum_of_ones(api, rest), 2);
    EXPECT_EQ(forwarded(), 0);
    barrier(*store, "reduced again", 2);
    expect_ok(api.destroy(rest));
    expect_ok(api.abort(comm));
    return std::string{};
  });
  const std::vector<testing::Exit> exits = ranks.wait(std::chrono::seconds{50});
  EXPECT_EQ(exits[0].signal, SIGKILL);
  for (const std::size_t i : {1, 2}) EXPECT_EQ(exits[i].code, 0) << exits[i].text;
}

TEST_F(NcclAcceleration, RevokeEndsCarriedCallsAndLeavesTheCommunicatorToBeDestroyed) {
  const Api api;
  std::array<Comm, 2> comms{};
  expect_ok(api.init_all(comms.data(), 2, nullptr));
  Result result = Result::success;
  int data = 0;
  std::thread waiting([&] { result = api.all_reduce(&data, &data, 1, kInt, kAdd, comms[0], nullptr); });
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  expect_ok(api.revoke(comms[0], 0));
  waiting.join();
  // A call that begins only now is NCCL's, or finds no communicator.
  if (forwarded() > 0) {
    EXPECT_EQ(result, Result::success);
  } else {
    EXPECT_THAT(result, AnyOf(Result::remote_error, Result::invalid_argument));
  }
  Result state = Result::internal_error;
  expect_ok(api.async_error(comms[0], &state));
  EXPECT_EQ(state, Result::success) << "NCCL's";
  for (Comm each : comms) expect_ok(api.destroy(each));
}

TEST_F(NcclAcceleration, InitAllInAGroupJoinsAtItsEnd) {
  const Api api;
  std::array<Comm, 2> comms{};
  expect_ok(api.group_start());
  expect_ok(api.init_all(comms.data(), 2, nullptr));
  expect_ok(api.group_end());
  std::array<int, 2> data = {1, 2};
  add_up(api, comms, data);
  EXPECT_THAT(data, Each(3));
  for (Comm each : comms) expect_ok(api.destroy(each));
}

/// Two communicators of two ranks each, of this thread. NCCL's is forwarded.
struct Mixed {
  std::array<Comm, kTwoRanks> of_nccl{};
  std::array<Comm, kTwoRanks> carried{};
  std::array<int, kTwoRanks> data = {1, 2};
  int forwarded_data = 1;

  explicit Mixed(const Api& api) {
    const Config nonblocking{sizeof(Config), 0, 0, 0};
    UniqueId id{};
    expect_ok(api.get_unique_id(&id));
    expect_ok(api.group_start());
    for (const std::size_t i : {0, 1})
      expect_ok(api.init_rank_config(&of_nccl[i], kTwoRanks, id, static_cast<int>(i), &nonblocking));
    expect_ok(api.group_end());
    expect_ok(api.init_all(carried.data(), kTwoRanks, nullptr));
  }
  [[nodiscard]] Result forward(const Api& api) {
    return api.all_reduce(&forwarded_data, &forwarded_data, 1, kInt, kAdd, of_nccl[0], nullptr);
  }
  void carry(const Api& api) {
    for (const std::size_t i : {0, 1})
      expect_ok(api.all_reduce(&data[i], &data[i], 1, kInt, kAdd, carried[i], nullptr));
  }
  void destroy(const Api& api) {
    for (const auto& comms : {of_nccl, carried}) {
      for (Comm each : comms) expect_ok(api.destroy(each));
    }
  }
};

/// The results of the next collective and the next end of a group of NCCL.
void fail_in_nccl(Result collective, Result group_end) {
  void* const handle = ::dlopen(ONEHOP_FAKE_NCCL, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(handle, nullptr);
  reinterpret_cast<void (*)(Result, Result)>(::dlsym(handle, "fake_nccl_fail"))(collective, group_end);
}

TEST_F(NcclAcceleration, AGroupMakesForwardedAndCarriedCallsInAnyOrder) {
  const Api api;
  Mixed mixed(api);
  expect_ok(api.group_start());
  expect_ok(mixed.forward(api));
  mixed.carry(api);
  EXPECT_THAT(mixed.data, ElementsAre(1, 2)) << "not before the end";
  expect_ok(api.group_end());
  EXPECT_THAT(mixed.data, Each(3));
  EXPECT_EQ(forwarded(), 1);
  expect_ok(api.group_start());
  mixed.carry(api);
  expect_ok(mixed.forward(api));
  expect_ok(api.group_end());
  EXPECT_THAT(mixed.data, Each(6));
  EXPECT_EQ(forwarded(), 2);
  EXPECT_EQ(mixed.forwarded_data, 1);
  mixed.destroy(api);
}

TEST_F(NcclAcceleration, AGroupWhoseForwardedPartFailsAtItsEndStillMakesTheCarriedCalls) {
  const Api api;
  Mixed mixed(api);
  expect_ok(api.group_start());
  expect_ok(mixed.forward(api));
  mixed.carry(api);
  fail_in_nccl(Result::success, Result::unhandled_cuda_error);
  EXPECT_EQ(api.group_end(), Result::unhandled_cuda_error);
  EXPECT_THAT(mixed.data, Each(3));
  expect_ok(api.group_start());
  mixed.carry(api);
  expect_ok(api.group_end());
  EXPECT_THAT(mixed.data, Each(6)) << "nothing of the failure is left";
  mixed.destroy(api);
}

TEST_F(NcclAcceleration, AGroupInWhichAForwardedCallIsRefusedMakesNoCarriedCall) {
  const Api api;
  Mixed mixed(api);
  expect_ok(api.group_start());
  fail_in_nccl(Result::invalid_argument, Result::success);
  EXPECT_EQ(mixed.forward(api), Result::invalid_argument);
  mixed.carry(api);
  EXPECT_EQ(api.group_end(), Result::invalid_argument);
  EXPECT_THAT(mixed.data, ElementsAre(1, 2));
  mixed.destroy(api);
}

TEST_F(NcclAcceleration, AGroupInWhichACarriedCallIsRefusedEndsThatOfNccl) {
  const Api api;
  Mixed mixed(api);
  expect_ok(api.group_start());
  expect_ok(mixed.forward(api));
  mixed.carry(api);
  EXPECT_EQ(api.broadcast(nullptr, nullptr, SIZE_MAX, kInt, 0, mixed.carried[0], nullptr),
            Result::invalid_argument);
  EXPECT_EQ(api.group_end(), Result::invalid_argument);
  EXPECT_THAT(mixed.data, ElementsAre(1, 2));
  expect_ok(mixed.forward(api));
  EXPECT_EQ(forwarded(), 2);
  mixed.destroy(api);
}

TEST_F(NcclAcceleration, ASimulatedEndMakesNoCallAndEndsTheGroup) {
  const Api api;
  std::array<Comm, 1> comm{};
  expect_ok(api.init_all(comm.data(), 1, nullptr));
  const int in = 7;
  int out = 0;
  expect_ok(api.group_start());
  expect_ok(api.all_reduce(&in, &out, 1, kInt, kAdd, comm[0], nullptr));
  expect_ok(function<Result(void*)>("ncclGroupSimulateEnd")(nullptr));
  EXPECT_EQ(out, 0);
  expect_ok(api.all_reduce(&in, &out, 1, kInt, kAdd, comm[0], nullptr));
  EXPECT_EQ(out, 7) << "not queued";
  expect_ok(api.destroy(comm[0]));
}

TEST_F(NcclAcceleration, ASimulatedEndReturnsTheErrorOfACarriedCall) {
  const Api api;
  std::array<Comm, 1> comm{};
  expect_ok(api.init_all(comm.data(), 1, nullptr));
  expect_ok(api.group_start());
  expect_ok(api.group_start());
  EXPECT_EQ(api.broadcast(nullptr, nullptr, SIZE_MAX, kInt, 0, comm[0], nullptr), Result::invalid_argument);
  expect_ok(function<Result(void*)>("ncclGroupSimulateEnd")(nullptr));  // of the inner group
  EXPECT_EQ(function<Result(void*)>("ncclGroupSimulateEnd")(nullptr), Result::invalid_argument);
  expect_ok(api.group_start());
  expect_ok(function<Result(void*)>("ncclGroupSimulateEnd")(nullptr));
  expect_ok(api.destroy(comm[0]));
}

TEST_F(NcclAcceleration, InitAllIsCarriedUntilTheCommunicatorIsDestroyed) {
  const Api api;
  std::array<Comm, 1> comm{};
  for (int i = 0; i < 20; ++i) {  // the heap gives the same handle again
    expect_ok(api.init_all(comm.data(), 1, nullptr));
    EXPECT_EQ(sum_of_ones(api, comm[0]), 1);
    expect_ok(i % 2 == 0 ? api.destroy(comm[0]) : api.abort(comm[0]));
  }
  EXPECT_EQ(forwarded(), 0);
}

TEST_F(NcclAcceleration, OffForwardsCommunicatorsWithTheIdOfNccl) {
  ::setenv("ONEHOP_NCCL", "off", 1);
  on_two_threads({}, [](const Api& api, Comm comm, int) { EXPECT_EQ(sum_of_ones(api, comm), 1); });
  EXPECT_EQ(forwarded(), kTwoRanks);
}

}  // namespace
}  // namespace onehop::nccl
