// SPDX-License-Identifier: Apache-2.0
// How send and recv fail when the other end does not do its part, beyond what deadlines_test and
// kill_matrix_test check for all calls.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "fault/world.h"
#include "support/ranks.h"

namespace onehop::fault::transfers_test {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::TempDir;

constexpr std::size_t kLong = 2'000'000;  // elements: fills the ring many times
constexpr DType kType = DType::i32;

Group join(const TempDir& dir, Rank rank, int size) {
  return Group::join(file_store(dir.path()), {.rank = rank, .size = size, .scratch_bytes = 1 << 20});
}

TEST(Transfers, TimeoutsNameThePairAndTheMessage) {
  struct Row {
    std::function<void(Group&)> call;  ///< only rank 0 makes it
    const char* text;
  };
  std::vector<std::int32_t> data(kLong);
  const CallOptions soon{.algorithm = {}, .timeout = Duration{60}};
  const Row rows[] = {
      {[&](Group& group) { (void)recv(group, data.data(), 12, kType, Rank{2}, {}, soon); },
       "recv: rank 0 waited 60 ms for rank 2 to send 12 i32"},
      {[&](Group& group) { (void)send(group, data.data(), kLong, kType, Rank{1}, {}, soon); },
       "send: rank 0 waited 60 ms for rank 1 to receive 2000000 i32"},
      {[&](Group& group) {
         GroupCall scope;
         (void)recv(group, data.data(), 12, kType, Rank{2}, {}, soon);
         (void)send(group, data.data(), 1, kType, Rank{1}, {}, soon);
         scope.end();
       },
       "send and recv: rank 0 waited 60 ms for rank 2 to send 12 i32"},
  };
  for (const Row& row : rows) {
    const TempDir dir;
    World world(3, [&](World& self, Rank rank) {
      Group group = join(dir, rank, 3);
      // A call that fails while another rank is still in `join` ends that join.
      self.raise(1);
      if (!self.await(1, 3, seconds{20})) throw std::logic_error("a rank has not joined");
      Attempt& attempt = self.card(rank).attempts[0];
      if (rank.value == 0) {
        attempt.run([&] { row.call(group); });
        self.raise(0);
      } else {
        if (!self.await(0, 1, seconds{20})) throw std::logic_error("rank 0 never ended");
        attempt.run([&] { group.barrier(); });
      }
    });
    ASSERT_TRUE(world.finish(seconds{30}));
    for (const Rank r : {Rank{0}, Rank{1}, Rank{2}}) {
      const Attempt& attempt = world.card(r).attempts[0];
      EXPECT_EQ(attempt.error(), ErrorCode::timeout) << attempt.text();
      EXPECT_EQ(attempt.text(), row.text);
    }
  }
}

TEST(Transfers, WhatARankSentBeforeItLeftIsReceived) {
  const TempDir dir;
  World world(2, [&](World& self, Rank rank) {
    Attempt& attempt = self.card(rank).attempts[0];
    attempt.run([&] {
      Group group = join(dir, rank, 2);
      std::vector<std::int32_t> data(3, rank.value + 1);
      if (rank.value == 0) {
        (void)send(group, data.data(), 3, kType, Rank{1});
        (void)send(group, data.data(), 2, kType, Rank{1});
        group.leave();
        self.raise(0);
        return;
      }
      if (!self.await(0, 1, seconds{20})) throw std::logic_error("rank 0 never left");
      (void)recv(group, data.data(), 3, kType, Rank{0});
      if (data != std::vector<std::int32_t>(3, 1)) throw std::logic_error("received something else");
      (void)recv(group, data.data(), 2, kType, Rank{0});
      (void)recv(group, data.data(), 1, kType, Rank{0});  // no matching send
    });
  });
  ASSERT_TRUE(world.finish(seconds{30}));
  EXPECT_EQ(world.card(Rank{0}).attempts[0].state.load(), Attempt::succeeded);
  const Attempt& receiver = world.card(Rank{1}).attempts[0];
  EXPECT_EQ(receiver.error(), ErrorCode::peer_lost) << receiver.text();
  EXPECT_THAT(receiver.text(), HasSubstr("rank 0 has left the group; seen by rank 1 during recv"));
}

TEST(Transfers, TwoRanksThatBothSendFirstOutsideAGroupCallTimeOut) {
  // This is not a feature: the mistake shows as a timeout.
  const TempDir dir;
  World world(2, [&](World& self, Rank rank) {
    Group group = join(dir, rank, 2);
    Attempt& attempt = self.card(rank).attempts[0];
    attempt.run([&] {
      std::vector<std::int32_t> data(kLong);
      const Rank other{1 - rank.value};
      (void)send(group, data.data(), kLong, kType, other, {}, {.algorithm = {}, .timeout = Duration{100}});
      (void)recv(group, data.data(), kLong, kType, other);
    });
    self.raise(0);
    (void)self.await(0, 2, seconds{20});
  });
  ASSERT_TRUE(world.finish(seconds{30}));
  for (const Rank r : {Rank{0}, Rank{1}}) {
    const Attempt& attempt = world.card(r).attempts[0];
    EXPECT_EQ(attempt.error(), ErrorCode::timeout) << attempt.text();
    EXPECT_THAT(attempt.text(), HasSubstr("to receive 2000000 i32"));
  }
}

}  // namespace
}  // namespace onehop::fault::transfers_test
