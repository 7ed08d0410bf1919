// SPDX-License-Identifier: Apache-2.0
#include "base/interrupt.h"

#include <gtest/gtest.h>

#include <chrono>

#include "onehop/error.h"
#include "onehop/interrupt.h"

namespace onehop {
namespace {

using std::chrono::milliseconds;

class Interrupt : public ::testing::Test {
 protected:
  ~Interrupt() override { set_interrupt_check({}); }
};

TEST_F(Interrupt, EndsAPauseLongBeforeItIsOver) {
  int looks = 0;
  set_interrupt_check([&] { return ++looks == 3; });
  try {
    pause_in_wait(std::chrono::hours{1}, Deadline::after(std::chrono::hours{1}), "waiting");
    FAIL() << "it was not interrupted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::aborted);
    EXPECT_TRUE(std::string_view(error.message()).starts_with("waiting: interrupted"));
  }
  EXPECT_EQ(looks, 3);
}

TEST_F(Interrupt, APauseEndsAtTheDeadline) {
  const Deadline deadline = Deadline::after(milliseconds{30});
  pause_in_wait(std::chrono::hours{1}, deadline, "waiting");
  EXPECT_TRUE(deadline.expired());
}

TEST_F(Interrupt, IsNotRepeatedInTheCleanUpWhichEndsSoon) {
  set_interrupt_check([] { return true; });
  const Deadline late = Deadline::after(std::chrono::hours{1});
  EXPECT_EQ(within_clean_up(late).at(), late.at());
  {
    const CleanUpTime outer;
    EXPECT_NO_THROW(throw_if_interrupted("cleaning up"));
    const Deadline end = within_clean_up(late);
    EXPECT_LE(end.left(), CleanUpTime::kLength);
    {
      const CleanUpTime inner;
      EXPECT_EQ(within_clean_up(late).at(), end.at()) << "no more time inside another clean-up";
    }
    EXPECT_EQ(within_clean_up(late).at(), end.at());
    const Deadline early = Deadline::passed();
    EXPECT_EQ(within_clean_up(early).at(), early.at());
  }
  EXPECT_THROW(throw_if_interrupted("waiting"), Error);
}

}  // namespace
}  // namespace onehop
