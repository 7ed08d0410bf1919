// SPDX-License-Identifier: Apache-2.0
#include "group/device_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <bit>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "call/call_record.h"
#include "os/socket.h"
#include "support/errors.h"

namespace onehop {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using Mesh = IpcChannel::Mesh;

/// Two ranks of a group and their DeviceProgress.
class TwoRanks : public ::testing::Test {
 protected:
  TwoRanks() { restart(); }

  /// A new group.
  void restart() {
    auto [zero, one] = os::socket_pair();
    std::vector<os::UniqueFd> sockets(2);
    sockets[1] = std::move(zero);
    meshes_[0] = std::make_unique<Mesh>(Rank{0}, 2, std::move(sockets));
    sockets.resize(2);
    sockets[0] = std::move(one);
    meshes_[1] = std::make_unique<Mesh>(Rank{1}, 2, std::move(sockets));
    counts_ = std::make_unique<std::array<host::Progress, 2>>();
    const std::vector<host::Progress*> all{&(*counts_)[0], &(*counts_)[1]};
    for (int r = 0; r < 2; ++r)
      progress_[static_cast<std::size_t>(r)] = std::make_unique<DeviceProgress>(Rank{r}, all);
  }

  void queue(int rank, Duration timeout = seconds{20}) { queue(rank, kCall, timeout); }
  void queue(int rank, const CallRecord& call, Duration timeout = seconds{20}) {
    os::CallDeadline deadline(timeout);
    of(rank).begin(call, *meshes_[static_cast<std::size_t>(rank)], deadline, "all_reduce");
  }
  Error refuse(int rank) {
    os::CallDeadline deadline(seconds{20});
    return error_of([&] {
      of(rank).refuse(Error(ErrorCode::invalid_argument, "no", Rank{rank}),
                      *meshes_[static_cast<std::size_t>(rank)], deadline, "all_reduce");
    });
  }
  static constexpr CallRecord kCall{.count = 1000,
                                    .collective = static_cast<std::uint8_t>(Collective::all_reduce),
                                    .dtype = static_cast<std::uint8_t>(DType::f32),
                                    .algorithm = kAnyAlgorithm};
  DeviceProgress& of(int rank) { return *progress_[static_cast<std::size_t>(rank)]; }
  Mesh& mesh(int rank) { return *meshes_[static_cast<std::size_t>(rank)]; }

  std::unique_ptr<std::array<host::Progress, 2>> counts_;
  std::array<std::unique_ptr<DeviceProgress>, 2> progress_;
  std::array<std::unique_ptr<Mesh>, 2> meshes_;
};

using Refusals = TwoRanks;
using Mismatches = TwoRanks;

TEST_F(Refusals, OfAllRanksLeaveTheGroupUsable) {
  for (int round = 0; round < 5; ++round) {
    EXPECT_EQ(refuse(0).origin(), Rank{0});
    EXPECT_EQ(refuse(1).origin(), Rank{1});
    if (round % 2 == 0) continue;  // two in a row
    queue(1);
    queue(0);
  }
  EXPECT_FALSE(of(0).contradicted_refusal());
  EXPECT_TRUE(meshes_[0]->usable());
}

TEST_F(Refusals, OfOneRankAreItsNextCallsErrorWhereAnotherRankHasQueuedTheCall) {
  (void)refuse(0);
  EXPECT_FALSE(of(0).contradicted_refusal()) << "the other rank has not begun it";
  queue(1);
  ASSERT_TRUE(of(0).contradicted_refusal());
  const Error error = error_of([&] { queue(0); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error.origin(), Rank{0});
  EXPECT_EQ(error_of([&] { meshes_[1]->check("anything"); }).message(), error.message());
}

TEST_F(Refusals, OfTheCallAfterAreNotTakenForRefusalsOfThisOne) {
  (void)refuse(0);
  queue(1);
  (void)refuse(1);
  EXPECT_TRUE(of(0).contradicted_refusal());
}

TEST_F(Refusals, ThatAnotherRankDoesNotComeToAreTheErrorAtTheDeadline) {
  (void)refuse(0);
  const Error error = error_of([&] { queue(0, Duration{20}); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error.message(), "no");
}

TEST_F(Refusals, AreOpenUntilAllRanksHaveRefused) {
  EXPECT_FALSE(of(0).open_refusal());
  (void)refuse(0);
  EXPECT_TRUE(of(0).open_refusal());
  (void)refuse(1);
  EXPECT_FALSE(of(0).open_refusal());
}

TEST_F(Refusals, WaitForRanksThatAreBehind) {
  (void)refuse(0);
  std::jthread late([&] { (void)refuse(1); });
  queue(0);
  late.join();
  queue(1);
  EXPECT_EQ(of(0).behind(), RankSet{0});
  queue(0);
  EXPECT_EQ(of(0).behind(), set_of(Rank{1}));
}

/// Calls that differ from kCall in one property each, and how the error tells them.
std::vector<std::pair<CallRecord, std::string>> other_calls(const CallRecord& call) {
  std::vector<std::pair<CallRecord, std::string>> others(7, {call, ""});
  others[0].first.count = 1001, others[0].second = "count 1001";
  others[1].first.dtype = static_cast<std::uint8_t>(DType::f64), others[1].second = "f64";
  others[2].first.op = static_cast<std::uint8_t>(ReduceOp::max), others[2].second = "max";
  others[3].first.collective = static_cast<std::uint8_t>(Collective::all_gather),
  others[3].second = "all_gather";
  others[4].first.algorithm = static_cast<std::uint8_t>(Algorithm::two_shot), others[4].second = "two-shot";
  others[5].first.symmetric = 1, others[5].second = "symmetric";
  others[6].first.factor = std::bit_cast<std::uint64_t>(0.5), others[6].second = "factor 0.5";
  return others;
}

TEST_F(Mismatches, OfAnyPropertyAreFoundByTheRankThatComesSecondBeforeItQueuesItsCall) {
  for (const auto& other : other_calls(kCall)) {
    SCOPED_TRACE(other.second);
    for (int first = 0; first < 2; ++first) {
      restart();
      queue(0);
      queue(1);
      queue(first);
      const Error error = error_of([&] { queue(1 - first, other.first); });
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
      EXPECT_EQ(error.origin(), Rank{1}) << error.what();
      EXPECT_THAT(error.message(),
                  ::testing::AllOf(HasSubstr("rank 0 calls all_"), HasSubstr("rank 1 calls all_"),
                                   HasSubstr("count 1000, f32, sum)"), HasSubstr(other.second)));
      EXPECT_FALSE(meshes_[static_cast<std::size_t>(1 - first)]->usable());
      EXPECT_EQ(error_of([&] { mesh(first).check("anything"); }).message(), error.message());
    }
  }
}

TEST_F(Mismatches, OfTheRootAreFound) {
  CallRecord call = kCall;
  call.collective = static_cast<std::uint8_t>(Collective::broadcast);
  call.root = 0;
  queue(0, call);
  call.root = 1;
  EXPECT_THAT(error_of([&] { queue(1, call); }).message(), AllOf(HasSubstr("root 0"), HasSubstr("root 1")));
}

TEST_F(Mismatches, AreFoundAlthoughRanksAreFarApart) {
  CallRecord other = kCall;
  other.count = 1;
  constexpr int kAhead = 3 * host::Progress::kKeptCalls;
  for (int i = 0; i < kAhead; ++i) queue(0);
  EXPECT_FALSE(of(0).find_mismatch());
  queue(1, other);  // the record of rank 0's first call is gone
  for (int i = 1; i < kAhead - static_cast<int>(host::Progress::kKeptCalls); ++i) queue(1);
  EXPECT_TRUE(meshes_[1]->usable());
  const Error error = error_of([&] { queue(1); });
  EXPECT_EQ(error.code(), ErrorCode::mismatch);
  EXPECT_THAT(error.message(), HasSubstr("made different calls, more than 256 calls ago"));
}

TEST_F(Mismatches, OfTheLatestCallsAreFoundWithoutAFurtherCall) {
  for (int i = 0; i < 10; ++i) queue(0);
  for (int i = 0; i < 9; ++i) queue(1);
  EXPECT_FALSE(of(0).find_mismatch());
  EXPECT_FALSE(of(1).find_mismatch());
  CallRecord other = kCall;
  other.count = 1;
  (void)error_of([&] { queue(1, other); });
  ASSERT_TRUE(of(0).find_mismatch());
  EXPECT_EQ(of(0).find_mismatch()->message(), of(1).find_mismatch()->message());
}

TEST_F(Mismatches, AreNotSeenInCallsThatAllRanksRefuse) {
  for (int round = 0; round < 5; ++round) {
    queue(0);
    queue(1);
    (void)refuse(0);
    (void)refuse(1);
    EXPECT_FALSE(of(0).find_mismatch());
  }
  EXPECT_TRUE(meshes_[0]->usable());
}

// Whichever way the ranks' calls interleave, one of two that differ is not queued.
TEST_F(Mismatches, AreNeverQueuedByBothRanks) {
  CallRecord other = kCall;
  other.dtype = static_cast<std::uint8_t>(DType::f16);
  for (int round = 0; round < 300; ++round) {
    restart();
    std::barrier together(2);
    std::array<bool, 2> queued{};
    const auto run = [&](int rank) {
      for (int i = 0; i < 20; ++i) queue(rank);
      together.arrive_and_wait();
      try {
        queue(rank, rank == 0 ? kCall : other);
        queued[static_cast<std::size_t>(rank)] = true;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
      }
    };
    std::jthread one([&] { run(1); });
    run(0);
    one.join();
    ASSERT_FALSE(queued[0] && queued[1]) << "round " << round;
    EXPECT_TRUE(of(0).find_mismatch() || of(1).find_mismatch());
  }
}

}  // namespace
}  // namespace onehop
