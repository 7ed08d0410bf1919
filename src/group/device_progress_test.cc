// SPDX-License-Identifier: Apache-2.0
#include "group/device_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "os/socket.h"
#include "support/errors.h"

namespace onehop {
namespace {

using std::chrono::seconds;
using testing::error_of;
using Mesh = IpcChannel::Mesh;

/// Two ranks of a group and their DeviceProgress.
class Refusals : public ::testing::Test {
 protected:
  Refusals() {
    auto [zero, one] = os::socket_pair();
    std::vector<os::UniqueFd> sockets(2);
    sockets[1] = std::move(zero);
    meshes_[0] = std::make_unique<Mesh>(Rank{0}, 2, std::move(sockets));
    sockets.resize(2);
    sockets[0] = std::move(one);
    meshes_[1] = std::make_unique<Mesh>(Rank{1}, 2, std::move(sockets));
  }

  void queue(int rank, Duration timeout = seconds{20}) {
    os::CallDeadline deadline(timeout);
    of(rank).begin(*meshes_[static_cast<std::size_t>(rank)], deadline, "all_reduce");
  }
  Error refuse(int rank) {
    os::CallDeadline deadline(seconds{20});
    return error_of([&] {
      of(rank).refuse(Error(ErrorCode::invalid_argument, "no", Rank{rank}),
                      *meshes_[static_cast<std::size_t>(rank)], deadline, "all_reduce");
    });
  }
  DeviceProgress& of(int rank) { return progress_[static_cast<std::size_t>(rank)]; }

  std::array<host::Progress, 2> counts_;
  std::array<DeviceProgress, 2> progress_{DeviceProgress{Rank{0}, {&counts_[0], &counts_[1]}},
                                          DeviceProgress{Rank{1}, {&counts_[0], &counts_[1]}}};
  std::array<std::unique_ptr<Mesh>, 2> meshes_;
};

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

}  // namespace
}  // namespace onehop
