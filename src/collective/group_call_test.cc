// SPDX-License-Identifier: Apache-2.0
#include "collective/group_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "onehop/collectives.h"

#include "collective/fusion.h"
#include "support/ranks.h"

namespace onehop {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr DType kI32 = DType::i32;
constexpr std::size_t kLong = 1 << 20;  // elements; far more than the buffers hold

/// Ranks of one group that this thread drives alone.
class OneThread : public ::testing::Test {
 protected:
  OneThread() : groups_(Group::join_local(std::vector<DeviceId>(3, DeviceId::host), options())) {}

  static JoinOptions options() {
    JoinOptions options;
    options.scratch_bytes = 1 << 20;
    return options;
  }
  /// On every rank of `groups`: queues an all_reduce of ones to `out`, which is 0 until that has run.
  static void queue_all_reduce(std::vector<Group>& groups, int* out) {
    static constexpr int kOne = 1;
    for (Group& group : groups) EXPECT_EQ(all_reduce(group, &kOne, out++, 1, kI32), Algorithm::none);
  }
  static std::uint64_t calls(const Group& group) {
    return group.usage()[static_cast<std::size_t>(Algorithm::one_shot)];
  }
  static ErrorCode code_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode{};
  }

  std::vector<Group> groups_;
};

TEST_F(OneThread, SendsAmongItsRanksInAnyOrderOfCalls) {
  const std::size_t n = groups_.size();
  std::vector<std::vector<int>> in(n);
  std::vector<std::vector<int>> out(n, std::vector<int>(kLong, -1));
  for (std::size_t r = 0; r < n; ++r) in[r].assign(kLong, static_cast<int>(r));
  GroupCall scope;
  for (std::size_t r = 0; r < n; ++r) {
    const Rank right{static_cast<int>((r + 1) % n)};
    const Rank left{static_cast<int>((r + n - 1) % n)};
    EXPECT_EQ(send(groups_[r], in[r].data(), kLong, kI32, right), Algorithm::none);
    EXPECT_EQ(recv(groups_[r], out[r].data(), kLong, kI32, left), Algorithm::none);
  }
  EXPECT_THAT(out[0], Each(-1)) << "nothing runs before the end";
  scope.end();
  for (std::size_t r = 0; r < n; ++r) {
    EXPECT_EQ(out[r], in[(r + n - 1) % n]);
    EXPECT_EQ(calls(groups_[r]), 2U);
  }
}

TEST_F(OneThread, MakesCollectivesOfItsRanksInTheirOrderAndAfterTheTransfers) {
  std::vector<std::array<int, 4>> data(groups_.size());
  GroupCall scope;
  for (std::size_t r = 0; r < groups_.size(); ++r) {
    Group& group = groups_[r];
    std::array<int, 4>& mine = data[r];
    // Each call reads what the previous one writes; the first reads what is received.
    all_reduce(group, mine.data(), mine.data() + 1, 1, kI32);
    broadcast(group, mine.data() + 1, mine.data() + 2, 1, kI32, Rank{1});
    all_reduce(group, mine.data() + 2, mine.data() + 3, 1, kI32, ReduceOp::prod);
    static constexpr int kNine = 9;
    send(group, &kNine, 1, kI32, group.rank());
    recv(group, mine.data(), 1, kI32, group.rank());
  }
  scope.end();
  EXPECT_THAT(data, Each(ElementsAre(9, 27, 27, 27 * 27 * 27)));
}

TEST_F(OneThread, MakesEveryAllReduceOfARowBehindItsTransfers) {
  constexpr std::size_t kCalls = 5;
  std::vector<std::array<int, kCalls>> in(groups_.size());
  std::vector<std::array<int, kCalls>> out(groups_.size());
  GroupCall scope;
  for (std::size_t r = 0; r < groups_.size(); ++r) {
    for (std::size_t i = 0; i < kCalls; ++i) {
      in[r][i] = static_cast<int>(r + 10 * i);
      EXPECT_EQ(all_reduce(groups_[r], &in[r][i], &out[r][i], 1, kI32, i < 3 ? ReduceOp::sum : ReduceOp::max),
                Algorithm::none);
      static constexpr int kSeven = 7;
      if (i == 0) send(groups_[r], &kSeven, 1, kI32, groups_[r].rank());
      if (i == 1) recv(groups_[r], &in[r][4], 1, kI32, groups_[r].rank());
    }
    in[r][4] = 0;
  }
  scope.end();
  EXPECT_THAT(out, Each(ElementsAre(3, 33, 63, 32, 7)));
  for (const Group& group : groups_) EXPECT_EQ(calls(group), kCalls + 2);
}

TEST_F(OneThread, AnAllReduceThatCannotBeMadeEndsTheCallsOfItsGroup) {
  std::vector<std::array<int, 3>> data(groups_.size(), {1, 1, 1});
  GroupCall scope;
  for (std::size_t r = 0; r < groups_.size(); ++r) {
    int* const at = data[r].data();
    all_reduce(groups_[r], at, at, 1, kI32);
    all_reduce(groups_[r], r == 1 ? nullptr : at + 1, at + 1, 1, kI32);
    all_reduce(groups_[r], at + 2, at + 2, 1, kI32);
  }
  EXPECT_EQ(code_of([&] { scope.end(); }), ErrorCode::invalid_argument);
  EXPECT_THAT(data, Each(ElementsAre(3, 1, 1)));
}

TEST_F(OneThread, ACallAtTheEndOfAScopeIsNotQueuedAgain) {
  std::array<int, 3> out{};
  GroupCall scope;
  queue_all_reduce(groups_, out.data());
  scope.end();
  EXPECT_THAT(out, Each(3));
  EXPECT_EQ(GroupCall::Queue::open(), nullptr);
}

TEST_F(OneThread, OnlyTheOutermostEndStartsCalls) {
  std::array<std::array<int, 3>, 3> out{};
  GroupCall outer;
  queue_all_reduce(groups_, out[0].data());
  {
    GroupCall inner;
    queue_all_reduce(groups_, out[1].data());
    inner.end();
    EXPECT_THAT(out, Each(Each(0)));
  }
  queue_all_reduce(groups_, out[2].data());
  outer.end();
  EXPECT_THAT(out, Each(Each(3)));
}

TEST_F(OneThread, AScopeLeftByAnExceptionDropsWhatItQueuedAndNoMore) {
  std::array<std::array<int, 3>, 5> out{};
  GroupCall outer;
  queue_all_reduce(groups_, out[0].data());
  try {
    GroupCall inner;
    queue_all_reduce(groups_, out[1].data());
    throw std::runtime_error("leaves the scope");
  } catch (const std::runtime_error&) {
  }
  queue_all_reduce(groups_, out[2].data());
  outer.end();
  {
    GroupCall dropped;
    queue_all_reduce(groups_, out[3].data());
  }
  GroupCall next;
  queue_all_reduce(groups_, out[4].data());
  next.end();
  EXPECT_THAT(out, ElementsAre(Each(3), Each(0), Each(3), Each(0), Each(3)));
  EXPECT_EQ(GroupCall::Queue::open(), nullptr);
  for (Group& group : groups_) group.check();
}

TEST_F(OneThread, TheErrorOfTheFirstGroupIsThrownAfterAllHaveRun) {
  std::vector<Group> first = Group::join_local({DeviceId::host, DeviceId::host});
  std::vector<Group> second = Group::join_local({DeviceId::host, DeviceId::host});
  std::array<int, 2> values{};
  std::array<int, 2> behind{};
  std::array<int, 3> others{};
  GroupCall scope;
  for (std::size_t r = 0; r < first.size(); ++r) all_reduce(first[r], nullptr, &values[r], 1, kI32);
  queue_all_reduce(first, behind.data());
  for (std::size_t r = 0; r < second.size(); ++r) all_reduce(second[r], &values[r], &values[r], r, kI32);
  queue_all_reduce(groups_, others.data());
  EXPECT_EQ(code_of([&] { scope.end(); }), ErrorCode::invalid_argument) << "not the mismatch of the second";
  EXPECT_THAT(behind, Each(0)) << "behind a failure";
  EXPECT_THAT(others, Each(3));
  EXPECT_EQ(GroupCall::Queue::open(), nullptr);
}

TEST_F(OneThread, AMismatchAmongItsRanksIsFoundByAll) {
  std::vector<int> data(kLong);
  GroupCall scope;
  send(groups_[0], data.data(), kLong, kI32, Rank{1});
  recv(groups_[1], data.data(), kLong - 1, kI32, Rank{0});
  EXPECT_EQ(code_of([&] { scope.end(); }), ErrorCode::mismatch);
  for (Group& group : groups_) EXPECT_EQ(code_of([&] { group.barrier(); }), ErrorCode::mismatch);
}

TEST_F(OneThread, EndsOnceOnItsThreadAndBeforeTheScopeAround) {
  GroupCall scope;
  std::thread([&] { EXPECT_EQ(code_of([&] { scope.end(); }), ErrorCode::invalid_argument); }).join();
  std::array<int, 3> out{};
  queue_all_reduce(groups_, out.data());
  std::thread([] { EXPECT_EQ(GroupCall::Queue::open(), nullptr); }).join();
  scope.end();
  EXPECT_THAT(out, Each(3));
  EXPECT_EQ(code_of([&] { scope.end(); }), ErrorCode::invalid_argument);
}

TEST_F(OneThread, AnEmptyScopeDoesNothing) {
  GroupCall scope;
  EXPECT_NO_THROW(scope.end());
}

TEST_F(OneThread, WaitsAsLongAsTheLongestTimeoutOfItsTransfers) {
  std::array<int, 2> data{};
  const auto wait = [&](Duration other) {
    GroupCall scope;
    recv(groups_[0], data.data(), 1, kI32, Rank{1}, {}, {.algorithm = {}, .timeout = Duration{1}});
    recv(groups_[0], data.data() + 1, 1, kI32, Rank{2}, {}, {.algorithm = {}, .timeout = other});
    try {
      scope.end();
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("received");
  };
  EXPECT_THAT(wait(Duration{120}), HasSubstr("recv: rank 0 waited 120 ms for rank 1 to send 1 i32"));
}

TEST_F(OneThread, AGroupThatWasLeftFailsItsOwnCalls) {
  std::vector<Group> others = Group::join_local({DeviceId::host, DeviceId::host});
  std::array<int, 4> data{1, 2, 0, 0};
  GroupCall scope;
  send(groups_[0], data.data(), 1, kI32, Rank{1});
  send(others[0], data.data() + 1, 1, kI32, Rank{1});
  recv(others[1], data.data() + 2, 1, kI32, Rank{0});
  groups_[0].leave();
  EXPECT_EQ(code_of([&] { scope.end(); }), ErrorCode::invalid_argument);
  EXPECT_EQ(data[2], 2) << "the other group's calls are made all the same";
}

// --- fusion on GPUs ---

/// A call on memory that no call touches.
CollectiveCall bytes_at(std::size_t in, std::size_t out, std::size_t count) {
  static std::array<std::byte, 256> memory;
  CollectiveCall call;
  call.collective = Collective::all_reduce;
  call.in = memory.data() + in;
  call.out = memory.data() + out;
  call.count = count;
  call.type = DType::u8;
  call.ranks = 2;
  return call;
}

TEST(SimilarAllReduces, HaveTypeReductionAndAlgorithmInCommon) {
  const CollectiveCall call = bytes_at(0, 64, 8);
  std::vector<CollectiveCall> calls(4, call);
  EXPECT_EQ(count_similar(calls), 4U);
  calls[2].type = DType::i8;
  EXPECT_EQ(count_similar(calls), 2U);
  calls[2] = call;
  calls[2].op = ReduceOp::max;
  EXPECT_EQ(count_similar(calls), 2U);
  calls[2] = call;
  calls[2].options.algorithm = Algorithm::one_shot;
  EXPECT_EQ(count_similar(calls), 2U);
  EXPECT_EQ(count_similar(std::span(calls).subspan(2)), 1U);
  calls[2] = call;
  calls[2].collective = Collective::all_gather;
  EXPECT_EQ(count_similar(calls), 2U);
}

TEST(SimilarAllReduces, AreTheSameOnAllRanksWhateverTheirMemorySizeAndDeadline) {
  std::vector<CollectiveCall> calls{bytes_at(0, 64, 8), bytes_at(9, 9, 0), bytes_at(17, 91, 13)};
  calls[1].options.timeout = Duration{1};
  EXPECT_EQ(count_similar(calls), 3U);
}

TEST(ConflictingAllReduces, AreFoundWhereOneWritesWhatAnotherUses) {
  const CollectiveCall apart = bytes_at(0, 64, 8);
  const auto conflict = [&](const CollectiveCall& second, const CollectiveCall& third) {
    return find_conflict(std::array{apart, second, third});
  };
  const CollectiveCall other = bytes_at(128, 136, 8);
  EXPECT_EQ(conflict(bytes_at(8, 72, 8), other), std::nullopt) << "neighbors";
  EXPECT_EQ(conflict(bytes_at(0, 72, 8), bytes_at(4, 80, 8)), std::nullopt) << "inputs may be shared";
  EXPECT_EQ(conflict(bytes_at(71, 7, 0), other), std::nullopt) << "nothing to write";
  EXPECT_EQ(conflict(bytes_at(128, 7, 1), other), 1U) << "writes what the first reads";
  EXPECT_EQ(conflict(bytes_at(128, 71, 1), other), 1U) << "writes what the first writes";
  EXPECT_EQ(conflict(bytes_at(60, 80, 5), other), 1U) << "reads what the first writes";
  EXPECT_EQ(conflict(other, other), 2U);
  EXPECT_EQ(conflict(bytes_at(128, 128, 16), bytes_at(200, 143, 1)), 2U);
}

}  // namespace
}  // namespace onehop
