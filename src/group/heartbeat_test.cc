// SPDX-License-Identifier: Apache-2.0
#include "group/heartbeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace onehop {
namespace {

using ::testing::ElementsAre;
using Clock = Deadline::Clock;

class Heartbeat : public ::testing::Test {
 protected:
  void hear(Clock::time_point now) { listener_.hear(store_->get_for(sender_.key(), Duration{0}), now); }

  const std::shared_ptr<Store> store_ = memory_store();
  HeartbeatSender sender_{*store_, "onehop/world/waiting", 4};
  HeartbeatListener listener_;
  const os::Id nonce_ = os::random_id();
  const Clock::time_point start_ = Clock::now();
};

TEST_F(Heartbeat, TellsWhichRanksAreMissingOnceItChanges) {
  hear(start_);
  EXPECT_FALSE(listener_.believed(start_));
  sender_.send(nonce_, {2, 3}, Duration{1000});
  hear(start_ + kHeartbeatInterval);
  const std::optional<Waiting> waiting = listener_.believed(start_ + kHeartbeatInterval);
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->nonce, nonce_);
  EXPECT_EQ(waiting->size, 4);
  EXPECT_THAT(waiting->ranks, ElementsAre(2, 3));
}

TEST_F(Heartbeat, OfAnEarlierRunIsNotBelieved) {
  sender_.send(nonce_, {1}, Duration{1000});
  hear(start_);
  hear(start_ + kHeartbeatInterval);
  EXPECT_FALSE(listener_.believed(start_ + kHeartbeatInterval));
}

TEST_F(Heartbeat, ThatStopsIsNotBelievedForLong) {
  hear(start_);
  for (int beat = 1; beat <= 3; ++beat) {
    sender_.send(nonce_, {1}, Duration{1000});
    hear(start_ + beat * kHeartbeatInterval);
  }
  const Clock::time_point last = start_ + 3 * kHeartbeatInterval;
  hear(last + kHeartbeatBelieved);
  EXPECT_TRUE(listener_.believed(last + kHeartbeatBelieved));
  EXPECT_FALSE(listener_.believed(last + kHeartbeatBelieved + Duration{1}));
}

TEST_F(Heartbeat, ThatCannotBeReadIsNotBelieved) {
  hear(start_);
  store_->set(sender_.key(), "garbage");
  hear(start_ + kHeartbeatInterval);
  EXPECT_FALSE(listener_.believed(start_ + kHeartbeatInterval));
}

}  // namespace
}  // namespace onehop
