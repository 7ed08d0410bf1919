// SPDX-License-Identifier: Apache-2.0
// Communicators without NCCL: how they are made, divided, fail and end.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "barrier.h"
#include "support/ranks.h"
#include "unique_id.h"
#include "without_nccl.h"

namespace onehop::nccl {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NcclCommunicator : public WithoutNccl {};

TEST_F(NcclCommunicator, SplitsByColorInTheOrderOfKeys) {
  on_threads(3, [&](const Api& api, Comm comm, int rank) {
    Comm part = nullptr;
    EXPECT_EQ(api.split(comm, -2, 0, &part, nullptr), Result::invalid_argument);
    EXPECT_THAT(last_error(), HasSubstr("color -2"));
    expect_success(api.split(comm, rank == 1 ? -1 : 7, -rank, &part, nullptr));
    ASSERT_EQ(part == nullptr, rank == 1);
    if (part == nullptr) return;
    std::array<int, 2> said{};
    expect_success(api.count(part, &said[0]));
    expect_success(api.user_rank(part, &said[1]));
    EXPECT_THAT(said, ElementsAre(2, rank == 2 ? 0 : 1));
    std::array<int, 2> ranks{};
    expect_success(api.all_gather(&rank, ranks.data(), 1, kInt32, part, nullptr));
    EXPECT_THAT(ranks, ElementsAre(2, 0));
    expect_success(api.destroy(part));
  });
}

TEST_F(NcclCommunicator, ShrinksWithoutTheRanksThatAreExcluded) {
  on_threads(4, [&](const Api& api, Comm comm, int rank) {
    Comm part = nullptr;
    expect_success(api.split(comm, rank == 3 ? -1 : 0, -rank, &part, nullptr));  // ranks 2, 1 and 0
    if (part == nullptr) return;
    const int excluded = 0;
    for (int round = 0; round < 3 && rank != 2; ++round) {
      Comm rest = nullptr;
      expect_success(api.shrink(part, &excluded, 1, &rest, nullptr, 0));
      std::array<int, 3> said{};
      expect_success(api.count(rest, &said[0]));
      expect_success(api.user_rank(rest, &said[1]));
      expect_success(api.cuda_device(rest, &said[2]));
      EXPECT_THAT(said, ElementsAre(2, 1 - rank, 0));
      std::array<int, 2> ranks{};
      expect_success(api.all_gather(&rank, ranks.data(), 1, kInt32, rest, nullptr));
      EXPECT_THAT(ranks, ElementsAre(1, 0));
      expect_success(api.destroy(rest));
    }
    int sum = 1;
    expect_success(api.all_reduce(&sum, &sum, 1, kInt32, kSum, part, nullptr));
    EXPECT_EQ(sum, 3) << "the parent goes on";
    expect_success(api.destroy(part));
  });
}

TEST_F(NcclCommunicator, OneThreadShrinksSeveralRanksInAGroup) {
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 3);
  const std::array<int, 2> excluded = {2, 0};
  std::array<Comm, 3> rest{};
  Result result = Result::success;
  int data = 0;
  std::thread waiting([&] { result = api.all_reduce(&data, &data, 1, kInt32, kSum, comms[2], nullptr); });
  expect_success(api.group_start());
  for (const std::size_t i : {0, 1})
    expect_success(api.shrink(comms[i], excluded.data(), 1, &rest[i], nullptr, kShrinkAbort));
  expect_success(api.shrink(comms[1], excluded.data(), 2, &rest[2], nullptr, kShrinkAbort));
  expect_success(api.group_end());
  waiting.join();
  EXPECT_EQ(result, Result::remote_error) << "the calls of the parent have ended";
  std::array<int, 3> counts{};
  for (std::size_t i = 0; i < 3; ++i) expect_success(api.count(rest[i], &counts[i]));
  EXPECT_THAT(counts, ElementsAre(2, 2, 1));
  for (Comm each : rest) expect_success(api.destroy(each));
  for (Comm each : comms) expect_success(api.abort(each));
}

TEST_F(NcclCommunicator, ShrinkingWaitsForARankThatRemainsUntilItsTimeoutAndCanBeRepeated) {
  ::setenv("ONEHOP_NCCL_TIMEOUT", "10", 1);  // enough for the ranks of one process to join
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 3);
  const int excluded = 0;
  Comm rest = nullptr;
  EXPECT_EQ(api.shrink(comms[2], &excluded, 1, &rest, nullptr, 0), Result::remote_error);
  EXPECT_THAT(last_error(),
              AllOf(HasSubstr("ncclCommShrink: "), HasSubstr("rank 1 waited 10000 ms"), HasSubstr("rank 0")));
  EXPECT_EQ(rest, nullptr);
  std::array<Comm, 2> again{};
  expect_success(api.group_start());
  for (const std::size_t i : {0, 1})
    expect_success(api.shrink(comms[i + 1], &excluded, 1, &again[i], nullptr, 0));
  expect_success(api.group_end());
  for (Comm each : again) expect_success(api.destroy(each));
  for (Comm each : comms) expect_success(api.destroy(each));
}

TEST_F(NcclCommunicator, OneGroupShrinksTheSameRanksTwice) {
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 3);
  const int excluded = 1;
  std::array<Comm, 4> rest{};
  expect_success(api.group_start());
  for (const std::size_t i : {0, 1, 2, 3})
    expect_success(api.shrink(comms[i / 2 * 2], &excluded, 1, &rest[i], nullptr, 0));
  expect_success(api.group_end());
  std::array<int, 4> data = {1, 2, 4, 8};
  expect_success(api.group_start());
  for (std::size_t i = 0; i < 4; ++i)
    expect_success(api.all_reduce(&data[i], &data[i], 1, kInt32, kSum, rest[i], nullptr));
  expect_success(api.group_end());
  EXPECT_THAT(data, ElementsAre(5, 10, 5, 10));
  for (Comm each : rest) expect_success(api.destroy(each));
  for (Comm each : comms) expect_success(api.destroy(each));
}

TEST_F(NcclCommunicator, RanksThatCannotBeExcludedAreNamed) {
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 3);
  Comm rest = nullptr;
  const auto expect_refused = [&](std::vector<int> excluded, const char* text) {
    EXPECT_EQ(api.shrink(comms[1], excluded.data(), static_cast<int>(excluded.size()), &rest, nullptr, 0),
              Result::invalid_argument);
    EXPECT_THAT(last_error(), HasSubstr(text));
    EXPECT_EQ(rest, nullptr);
  };
  expect_refused({0, 3}, "ncclCommShrink: rank 3 of 3 ranks is excluded");
  expect_refused({-1}, "rank -1 of 3 ranks is excluded");
  expect_refused({0, 1}, "rank 1 makes the call that excludes it");
  expect_refused({2, 2}, "rank 2 is excluded twice");
  const int excluded = 0;
  EXPECT_EQ(api.shrink(comms[1], &excluded, 0, &rest, nullptr, 0), Result::invalid_argument);
  EXPECT_THAT(last_error(), HasSubstr("0 ranks are excluded"));
  EXPECT_EQ(api.shrink(comms[1], nullptr, 1, &rest, nullptr, 0), Result::invalid_argument);
  EXPECT_THAT(last_error(), HasSubstr("excludeRanksList is NULL"));
  EXPECT_EQ(api.shrink(comms[1], &excluded, 1, nullptr, nullptr, 0), Result::invalid_argument);
  EXPECT_THAT(last_error(), HasSubstr("newcomm is NULL"));
  EXPECT_EQ(api.shrink(nullptr, &excluded, 1, &rest, nullptr, 0), Result::invalid_argument);
  for (Comm each : comms) expect_success(api.destroy(each));
}

TEST_F(NcclCommunicator, SplitsInOneGroupAreMadeInTheirOrder) {
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 3);
  for (int round = 0; round < 20; ++round) {
    std::array<Comm, 3> all{};
    std::array<Comm, 3> alone{};
    expect_success(api.group_start());
    for (std::size_t i = 0; i < 3; ++i) {
      expect_success(api.split(comms[i], 0, 0, &all[i], nullptr));
      expect_success(api.split(comms[i], static_cast<int>(i), 0, &alone[i], nullptr));
    }
    expect_success(api.group_end());
    for (std::size_t i = 0; i < 3; ++i) {
      std::array<int, 2> said{};
      expect_success(api.count(all[i], &said[0]));
      expect_success(api.count(alone[i], &said[1]));
      EXPECT_THAT(said, ElementsAre(3, 1));
      expect_success(api.destroy(all[i]));
      expect_success(api.destroy(alone[i]));
    }
  }
  for (Comm each : comms) expect_success(api.destroy(each));
}

TEST_F(NcclCommunicator, OneThreadSetsUpAllRanksInAGroup) {
  constexpr int kRanks = 4;
  const Api api;
  UniqueId id{};
  expect_success(api.get_unique_id(&id));
  std::array<Comm, kRanks> comms{};
  expect_success(api.group_start());
  for (int rank = 0; rank < kRanks; ++rank)
    expect_success(api.init_rank_config(&comms[static_cast<std::size_t>(rank)], kRanks, id, rank, nullptr));
  Result state = Result::success;
  expect_success(api.async_error(comms[0], &state));
  EXPECT_EQ(state, Result::in_progress) << "nothing runs before the end";
  expect_success(api.group_end());

  std::array<int, kRanks> data = {1, 2, 3, 4};
  expect_success(api.group_start());
  for (std::size_t i = 0; i < kRanks; ++i) {
    expect_success(api.group_start());
    expect_success(api.all_reduce(&data[i], &data[i], 1, kInt32, kSum, comms[i], nullptr));
    expect_success(api.group_end());
  }
  EXPECT_THAT(data, ElementsAre(1, 2, 3, 4)) << "only the outermost end starts the calls";
  expect_success(api.group_end());
  EXPECT_THAT(data, Each(10));
  for (Comm each : comms) expect_success(api.destroy(each));
}

TEST_F(NcclCommunicator, RanksMeetAtTheFirstOfSeveralIds) {
  const Api api;
  std::array<UniqueId, 2> ids{};
  for (UniqueId& each : ids) expect_success(api.get_unique_id(&each));
  std::array<Comm, 2> comms{};
  EXPECT_EQ(api.init_rank_scalable(&comms[0], 2, 0, 2, nullptr, nullptr), Result::invalid_argument);
  EXPECT_THAT(last_error(), HasSubstr("ncclCommInitRankScalable: commIds is NULL"));
  for (const int count : {-1, 0, 3}) {
    EXPECT_EQ(api.init_rank_scalable(&comms[0], 2, 0, count, ids.data(), nullptr), Result::invalid_argument);
    EXPECT_THAT(last_error(), HasSubstr(std::to_string(count) + " unique ids for 2 ranks"));
  }
  expect_success(api.group_start());
  for (int rank = 0; rank < 2; ++rank)
    expect_success(
        api.init_rank_scalable(&comms[static_cast<std::size_t>(rank)], 2, rank, 2, ids.data(), nullptr));
  expect_success(api.group_end());
  std::array<int, 2> data = {1, 2};
  expect_success(api.group_start());
  for (std::size_t i = 0; i < 2; ++i)
    expect_success(api.all_reduce(&data[i], &data[i], 1, kInt32, kSum, comms[i], nullptr));
  expect_success(api.group_end());
  EXPECT_THAT(data, Each(3));
  for (Comm each : comms) expect_success(api.destroy(each));
}

TEST_F(NcclCommunicator, InitAllMakesOneRankPerDevice) {
  const Api api;
  const std::array<int, 2> devices = {3, 1};
  std::array<Comm, 2> comms{};
  expect_success(api.init_all(comms.data(), 2, devices.data()));
  for (int rank = 0; rank < 2; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    std::array<int, 3> said{};
    expect_success(api.count(comms[i], &said[0]));
    expect_success(api.user_rank(comms[i], &said[1]));
    expect_success(api.cuda_device(comms[i], &said[2]));
    EXPECT_THAT(said, ElementsAre(2, rank, devices[i]));
    expect_success(api.destroy(comms[i]));
  }
}

TEST_F(NcclCommunicator, AnErrorInAGroupIsTheResultOfItsEndAndNothingRuns) {
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 1);
  int in = 3;
  int out = 0;
  UniqueId id{};
  expect_success(api.get_unique_id(&id));
  Comm other = nullptr;
  expect_success(api.group_start());
  expect_success(api.init_rank(&other, 1, id, 0));
  expect_success(api.all_reduce(&in, &out, 1, kInt32, kSum, comms[0], nullptr));
  EXPECT_EQ(api.all_reduce(&in, &out, 1, kInt32, RedOp{99}, comms[0], nullptr), Result::invalid_argument);
  EXPECT_EQ(api.group_end(), Result::invalid_argument);
  EXPECT_EQ(out, 0);
  EXPECT_EQ(other, nullptr);
  expect_success(api.all_reduce(&in, &out, 1, kInt32, kSum, comms[0], nullptr));
  EXPECT_EQ(out, 3) << "the next calls are made at once";
  expect_success(api.destroy(comms[0]));
}

TEST_F(NcclCommunicator, AProgramMayCleanUpBeforeAFailedGroupEnds) {
  const Api api;
  UniqueId id{};
  expect_success(api.get_unique_id(&id));
  Comm first = nullptr;
  Comm second = nullptr;
  expect_success(api.group_start());
  expect_success(api.init_rank(&first, 1, id, 0));
  EXPECT_EQ(api.init_rank(&second, 1, id, 1), Result::invalid_argument);
  expect_success(api.abort(first));
  EXPECT_EQ(api.group_end(), Result::invalid_argument);
  EXPECT_EQ(second, nullptr);
}

TEST_F(NcclCommunicator, WrongArgumentsAreNamed) {
  const Api api;
  Comm comm = nullptr;
  EXPECT_EQ(api.group_end(), Result::invalid_usage);
  EXPECT_THAT(last_error(), HasSubstr("ncclGroupStart"));
  UniqueId id{};
  EXPECT_EQ(api.init_rank(&comm, 2, id, 2), Result::invalid_argument);
  EXPECT_THAT(last_error(), HasSubstr("rank 2 of 2 ranks"));
  EXPECT_EQ(api.init_rank(&comm, 1, id, 0), Result::internal_error);
  EXPECT_THAT(last_error(), HasSubstr("ncclGetUniqueId of libonehop_nccl did not make it"));
  const std::vector<Comm> comms = all_ranks(api, 1);
  EXPECT_EQ(api.revoke(comms[0], 1), Result::invalid_argument);
  EXPECT_THAT(last_error(), HasSubstr("ncclCommRevoke: revokeFlags 1 is not NCCL_REVOKE_DEFAULT (0)"));
  Result state = Result::internal_error;
  expect_success(api.async_error(comms[0], &state));
  EXPECT_EQ(state, Result::success) << "it goes on";
  expect_success(api.destroy(comms[0]));
  EXPECT_EQ(api.destroy(comms[0]), Result::invalid_argument) << "a second time";
  int count = 0;
  EXPECT_EQ(api.count(comms[0], &count), Result::invalid_argument);
  EXPECT_EQ(api.count(nullptr, &count), Result::invalid_argument);
}

TEST_F(NcclCommunicator, AbortEndsTheCallOfAnotherThread) {
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 2);
  Result result = Result::success;
  int data = 0;
  std::thread waiting([&] { result = api.all_reduce(&data, &data, 1, kInt32, kSum, comms[0], nullptr); });
  expect_success(api.abort(comms[0]));
  waiting.join();
  EXPECT_NE(result, Result::success);
  Result state = Result::success;
  expect_success(api.async_error(comms[1], &state));
  EXPECT_EQ(state, Result::remote_error);
  expect_success(api.abort(comms[1]));
}

// As NCCL has it: afterwards the state is a success again, and the ranks may shrink.
TEST_F(NcclCommunicator, ARankThatHasRevokedReportsNoErrorAndShrinks) {
  const Api api;
  const std::vector<Comm> comms = all_ranks(api, 3);
  const auto state_of = [&](Comm comm) {
    Result state = Result::internal_error;
    expect_success(api.async_error(comm, &state));
    return state;
  };
  expect_success(api.revoke(comms[0], 0));
  EXPECT_EQ(state_of(comms[0]), Result::success);
  EXPECT_EQ(state_of(comms[1]), Result::remote_error);
  expect_success(api.revoke(comms[1], 0));
  EXPECT_EQ(state_of(comms[1]), Result::success);
  int data = 1;
  EXPECT_EQ(api.all_reduce(&data, &data, 1, kInt32, kSum, comms[0], nullptr), Result::remote_error);
  const int excluded = 2;
  std::array<Comm, 2> rest{};
  expect_success(api.group_start());
  for (const std::size_t i : {0, 1}) expect_success(api.shrink(comms[i], &excluded, 1, &rest[i], nullptr, 0));
  expect_success(api.group_end());
  for (Comm each : rest) expect_success(api.destroy(each));
  for (Comm each : comms) expect_success(api.destroy(each));
}

TEST_F(NcclCommunicator, AnAbortDuringTheSetUpFailsIt) {
  const Api api;
  UniqueId id{};
  expect_success(api.get_unique_id(&id));
  Comm comm = nullptr;
  expect_success(api.group_start());
  expect_success(api.init_rank(&comm, 2, id, 0));
  std::thread other([&, aborted = comm] {
    expect_success(api.abort(aborted));
    Comm late = nullptr;
    Result result = api.init_rank(&late, 2, id, 1);  // may hear of it already
    if (result == Result::success) {
      int data = 0;
      result = api.all_reduce(&data, &data, 1, kInt32, kSum, late, nullptr);
      expect_success(api.abort(late));
    }
    EXPECT_EQ(result, Result::remote_error);
  });
  EXPECT_EQ(api.group_end(), Result::remote_error);
  // Of either thread, whichever came last.
  EXPECT_THAT(last_error(), AnyOf(HasSubstr("rank 0 was aborted while it was set up"),
                                  HasSubstr("rank 0 aborted the group: the set-up")));
  other.join();
}

// Long before the timeout, after which the test would be stopped.
TEST_F(NcclCommunicator, AnAbortEndsTheSetUpAlsoOfRanksThatWaitForOthers) {
  ::setenv("ONEHOP_NCCL_TIMEOUT", "1800", 1);
  const Api api;
  for (const int aborted : {0, 1}) {
    UniqueId id{};
    expect_success(api.get_unique_id(&id));
    std::array<Comm, 2> comms{};
    expect_success(api.group_start());
    for (const int rank : {0, 1})
      expect_success(api.init_rank(&comms[static_cast<std::size_t>(rank)], 3, id, rank));
    const Comm handle = comms[static_cast<std::size_t>(aborted)];
    std::thread other([&] {
      const Address address = parse_unique_id({id.bytes, UniqueId::kBytes});
      for (const int rank : {0, 1})
        (void)open_store(address)->get(fmt::format("onehop/{}/announce/{}", address.name, rank));
      expect_success(api.revoke(handle, 0));
    });
    EXPECT_EQ(api.group_end(), Result::remote_error);
    EXPECT_THAT(last_error(), AnyOf(HasSubstr("was aborted while it was set up"), HasSubstr("gave up")));
    other.join();
    Comm late = nullptr;
    EXPECT_EQ(api.init_rank(&late, 3, id, 2), Result::remote_error);
    EXPECT_EQ(late, nullptr);
  }
}

TEST_F(NcclCommunicator, AnAbortEndsTheSetUpAlsoOfTheOtherRanksOfItsThread) {
  ::setenv("ONEHOP_NCCL_TIMEOUT", "1800", 1);
  const Api api;
  for (const std::size_t aborted : {0, 2}) {
    std::array<Comm, 3> comms{};
    expect_success(api.group_start());
    expect_success(api.init_all(comms.data(), 3, nullptr));
    expect_success(api.revoke(comms[aborted], 0));
    EXPECT_EQ(api.group_end(), Result::remote_error);
    EXPECT_THAT(comms, Each(nullptr));
  }
}

TEST_F(NcclCommunicator, ReachingTheStoreOfAProcessThatHasEndedTakesNoLongerThanTheTimeout) {
  ::setenv("ONEHOP_NCCL_TIMEOUT", "2", 1);
  const Api api;
  UniqueId id{};
  expect_success(api.get_unique_id(&id));
  Address address = parse_unique_id({id.bytes, UniqueId::kBytes});
  address.port = 1;  // nobody listens there
  Comm comm = nullptr;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(api.init_rank(&comm, 2, to_unique_id(address), 0), Result::remote_error);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{10});
  EXPECT_THAT(last_error(), HasSubstr("no server could be reached within 2000 ms"));
  EXPECT_EQ(comm, nullptr);
}

/// Runs `body` on processes, each with a rank of one communicator.
std::vector<testing::Exit> on_processes(int size,
                                        const std::function<void(const Api&, Comm, int rank, Store&)>& body) {
  const testing::TempDir directory;
  testing::Processes ranks(size, [&](Rank rank) {
    const Api api;
    const auto store = file_store(directory.path());
    UniqueId id{};
    if (rank.value == 0) {
      expect_success(api.get_unique_id(&id));
      store->set("id", {id.bytes, UniqueId::kBytes});
    } else {
      const std::string bytes = store->get("id");
      std::memcpy(id.bytes, bytes.data(), UniqueId::kBytes);
    }
    Comm comm = nullptr;
    expect_success(api.init_rank(&comm, size, id, rank.value));
    body(api, comm, rank.value, *store);
    return std::string{};
  });
  return ranks.wait(std::chrono::seconds{50});
}

TEST_F(NcclCommunicator, ProcessesFindEachOtherByTheIdAndNoticeADeath) {
  const std::vector<testing::Exit> exits =
      on_processes(3, [](const Api& api, Comm comm, int rank, Store& store) {
        int data = rank + 1;
        expect_success(api.all_reduce(&data, &data, 1, kInt32, kSum, comm, nullptr));
        EXPECT_EQ(data, 6);
        // Not while another rank may still be in that call.
        store.add("reduced", 1);
        if (rank == 2) {
          while (store.add("reduced", 0) < 3) std::this_thread::sleep_for(std::chrono::milliseconds{1});
          ::raise(SIGKILL);
        }
        EXPECT_EQ(api.all_reduce(&data, &data, 1, kInt32, kSum, comm, nullptr), Result::remote_error);
        EXPECT_THAT(last_error(), HasSubstr("rank 2"));
        Result state = Result::success;
        expect_success(api.async_error(comm, &state));
        EXPECT_EQ(state, Result::remote_error);
        expect_success(api.abort(comm));
      });
  EXPECT_EQ(exits[0].code, 0) << exits[0].text;
  EXPECT_EQ(exits[1].code, 0) << exits[1].text;
  EXPECT_EQ(exits[2].signal, SIGKILL);
}

TEST_F(NcclCommunicator, ProcessesGoOnWithoutTheOneThatMadeTheIdAndDied) {
  const std::vector<testing::Exit> exits =
      on_processes(4, [](const Api& api, Comm comm, int rank, Store& store) {
        int data = 1;
        expect_success(api.all_reduce(&data, &data, 1, kInt32, kSum, comm, nullptr));
        barrier(store, "reduced", 4);  // no rank is in that call any more
        if (rank == 0) ::raise(SIGKILL);
        EXPECT_EQ(api.all_reduce(&data, &data, 1, kInt32, kSum, comm, nullptr), Result::remote_error);
        Comm rest = nullptr;
        int excluded = 0;
        expect_success(api.shrink(comm, &excluded, 1, &rest, nullptr, kShrinkAbort));
        std::array<int, 3> ranks{};
        expect_success(api.all_gather(&rank, ranks.data(), 1, kInt32, rest, nullptr));
        EXPECT_THAT(ranks, ElementsAre(1, 2, 3));
        barrier(store, "gathered", 3);
        // The next one to die is rank 2 of 3.
        if (rank == 3) ::raise(SIGKILL);
        excluded = 2;
        Comm last = nullptr;
        expect_success(api.shrink(rest, &excluded, 1, &last, nullptr, kShrinkAbort));
        data = rank;
        expect_success(api.all_reduce(&data, &data, 1, kInt32, kSum, last, nullptr));
        EXPECT_EQ(data, 3);
        barrier(store, "reduced again", 2);
        for (Comm each : {last, rest, comm}) expect_success(api.abort(each));
      });
  for (const std::size_t i : {0, 3}) EXPECT_EQ(exits[i].signal, SIGKILL);
  for (const std::size_t i : {1, 2}) EXPECT_EQ(exits[i].code, 0) << exits[i].text;
}

// Many programs never destroy their communicators.
TEST_F(NcclCommunicator, AProcessThatExitsAfterItsCallsIsNotTakenForDead) {
  const std::vector<testing::Exit> exits = on_processes(2, [](const Api& api, Comm comm, int rank, Store&) {
    std::array<int, 2> sent{};
    if (rank == 1) {
      expect_success(api.send(sent.data(), 2, kInt32, 0, comm, nullptr));
      std::exit(::testing::Test::HasFailure() ? 1 : 0);  // NOLINT(concurrency-mt-unsafe)
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{200});
    Result state = Result::internal_error;
    expect_success(api.async_error(comm, &state));
    EXPECT_EQ(state, Result::success);
    expect_success(api.recv(sent.data(), 2, kInt32, 1, comm, nullptr));
    EXPECT_EQ(api.recv(sent.data(), 2, kInt32, 1, comm, nullptr), Result::remote_error);
    EXPECT_THAT(last_error(), HasSubstr("left"));
  });
  for (const testing::Exit& each : exits) EXPECT_EQ(each.code, 0) << each.text;
}

TEST_F(NcclCommunicator, TheLastErrorIsThatOfAnyThread) {
  std::thread([] { EXPECT_EQ(Api{}.group_end(), Result::invalid_usage); }).join();
  EXPECT_THAT(last_error(), HasSubstr("ncclGroupStart"));
}

}  // namespace
}  // namespace onehop::nccl
