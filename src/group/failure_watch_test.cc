// SPDX-License-Identifier: Apache-2.0
#include "group/failure_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "onehop/group.h"

#include "support/errors.h"

namespace onehop {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

/// A group that fails, is heard and ends when the test says so.
class FakeGroup : public WatchedGroup {
 public:
  std::atomic<bool> fails{false};
  std::atomic<bool> left{false};
  std::atomic<int> looks{0};

  [[nodiscard]] std::optional<Error> unreported() override {
    ++looks;
    if (!fails) return std::nullopt;
    return Error(ErrorCode::peer_lost, "rank 1 died", Rank{1});
  }
  [[nodiscard]] std::string title() const override { return "rank 0 of 'fake'"; }
  [[nodiscard]] bool ended() const override { return left; }

  void await_looks(int more) const {
    const int wanted = looks + more;
    const Deadline deadline = Deadline::after(seconds{20});
    while (looks < wanted && !deadline.expired()) std::this_thread::sleep_for(milliseconds{1});
    ASSERT_GE(looks, wanted);
  }
};

class FailureWatching : public ::testing::Test {
 protected:
  bool ends_within(Duration time) {
    const Deadline deadline = Deadline::after(time);
    while (!ended_ && !deadline.expired()) std::this_thread::sleep_for(milliseconds{1});
    return ended_;
  }

  std::shared_ptr<FakeGroup> group_ = std::make_shared<FakeGroup>();
  std::atomic<int> ended_{0};
  FailureWatch watch_{[this] { ++ended_; }};
};

TEST_F(FailureWatching, AnUnreportedFailureIsLoggedAtOnceAndEndsTheProcessAfterTheGrace) {
  ::testing::internal::CaptureStderr();
  watch_.add(group_, Duration{300});
  group_->await_looks(2);
  EXPECT_EQ(ended_, 0);
  const auto begin = std::chrono::steady_clock::now();
  group_->fails = true;
  EXPECT_TRUE(ends_within(seconds{20}));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds{300});
  group_->left = true;
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("rank 0 of 'fake': the group has failed: rank 1 died"));
  EXPECT_THAT(
      log,
      HasSubstr(
          "rank 0 of 'fake': this process ends, because no call has reported the failure within 300 ms"));
  EXPECT_EQ(ended_, 1);
}

TEST_F(FailureWatching, AFailureThatACallHasReportedEndsNothing) {
  watch_.add(group_, Duration{1000});
  group_->fails = true;
  group_->await_looks(2);
  group_->fails = false;  // heard
  EXPECT_FALSE(ends_within(Duration{1500}));
}

TEST_F(FailureWatching, NeitherDoesAGroupThatWasLeftOrDestroyed) {
  const auto other = std::make_shared<FakeGroup>();
  watch_.add(group_, Duration{0});
  watch_.add(other, Duration{0});
  group_->await_looks(1);
  group_->left = true;
  group_->fails = true;
  group_.reset();
  other->await_looks(3);
  EXPECT_EQ(ended_, 0);
  other->fails = true;
  EXPECT_TRUE(ends_within(seconds{20})) << "the other group is still watched";
}

TEST_F(FailureWatching, WithoutAGraceItOnlyLogs) {
  ::testing::internal::CaptureStderr();
  watch_.add(group_, std::nullopt);
  group_->fails = true;
  group_->await_looks(1);
  EXPECT_FALSE(ends_within(Duration{200}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("the group has failed"));
}

std::vector<Group> join_on_host(std::size_t ranks) {
  return Group::join_local(std::vector<DeviceId>(ranks, DeviceId::host));
}

TEST(UnreportedFailure, IsTheGroupsUntilACallHasThrownIt) {
  std::vector<Group> groups = join_on_host(2);
  EXPECT_FALSE(groups[0].unreported_failure());
  groups[1].abort("no more");
  for (int i = 0; i < 2; ++i) {
    const std::optional<Error> failure = groups[0].unreported_failure();
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->code(), ErrorCode::aborted);
    EXPECT_EQ(failure->origin(), Rank{1});
  }
  EXPECT_THROW(groups[0].check(), Error);
  EXPECT_FALSE(groups[0].unreported_failure());
  groups[1].leave();
  ASSERT_TRUE(groups[1].unreported_failure()) << "its own failure, too, and after leaving";
  EXPECT_THROW(groups[1].check(), Error);
}

TEST(UnreportedFailure, OfAGroupWithoutAFailureIsNoneAfterLeaving) {
  std::vector<Group> groups = join_on_host(2);
  groups[1].leave();
  groups[0].leave();
  EXPECT_FALSE(groups[0].unreported_failure());
}

TEST(Watch, RefusesANegativeGrace) {
  std::vector<Group> groups = join_on_host(1);
  const Error error = testing::error_of([&] { groups[0].watch(Duration{-1}); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("-1 ms"));
  const Group moved = std::move(groups[0]);
  EXPECT_THAT(testing::error_of([&] { groups[0].watch(); }).message(), HasSubstr("moved from"));
}

// In a process of its own, which ends.
TEST(WatchDeathTest, EndsAProcessThatMakesNoCallsAfterAFailure) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::vector<Group> groups = join_on_host(2);
        groups[0].watch(Duration{100});
        groups[1].abort("no more");
        std::this_thread::sleep_for(seconds{20});
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(1), "rank 0 of .*: this process ends");
}

TEST(WatchDeathTest, LetsAProcessGoOnThatHasHeard) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::vector<Group> groups = join_on_host(2);
        groups[0].watch(Duration{1000});
        groups[1].abort("no more");
        EXPECT_THROW(groups[0].barrier(), Error);
        std::this_thread::sleep_for(milliseconds{1500});
        std::_Exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace onehop
