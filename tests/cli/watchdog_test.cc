// SPDX-License-Identifier: Apache-2.0
// The watchdog of the benchmark on GPUs: it bites when nothing is heard, and only then.
#include "bench/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>

namespace onehop::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Duration kShort{20};
constexpr Duration kLong{600000};
constexpr std::chrono::seconds kEnough{60};

/// What a watchdog's last words were; shared, as its thread may outlive a test.
struct Heard {
  std::promise<std::string> message;
  std::atomic<int> times{0};
};

Watchdog::LastWords into(const std::shared_ptr<Heard>& heard) {
  return [heard](const Error& error) {
    if (heard->times++ == 0) heard->message.set_value(error.message());
  };
}

TEST(WatchdogTest, SaysWhatWasBeingDoneWhenNothingIsHeard) {
  std::string last_words;
  // On a busy machine its patience may end before this thread says anything.
  for (Duration patience = kShort; last_words.empty() || last_words.find("starting") != std::string::npos;
       patience *= 2) {
    const auto heard = std::make_shared<Heard>();
    std::future<std::string> message = heard->message.get_future();
    Watchdog watchdog(patience, into(heard));
    watchdog.alive("1M: timing");
    ASSERT_EQ(message.wait_for(kEnough), std::future_status::ready);
    last_words = message.get();
  }
  EXPECT_THAT(last_words, AllOf(HasSubstr("nothing was heard"), HasSubstr("1M: timing")));
}

TEST(WatchdogTest, CalledOffItStaysSilent) {
  const auto heard = std::make_shared<Heard>();
  std::optional<Watchdog> watchdog(std::in_place, kLong, into(heard));
  watchdog.reset();
  EXPECT_EQ(heard->times, 0);
}

TEST(WatchdogTest, AnExpectedEndThatDoesNotComeIsForcedWithItsFirstReason) {
  const auto heard = std::make_shared<Heard>();
  std::future<std::string> message = heard->message.get_future();
  {
    Watchdog watchdog(kLong, into(heard));
    watchdog.expect_end(Error(ErrorCode::mismatch, "wrong result"), kShort);
    watchdog.expect_end(Error(ErrorCode::timeout, "and then something else"), kLong);
    watchdog.alive("cleaning up");
  }
  ASSERT_EQ(message.wait_for(kEnough), std::future_status::ready) << "it outlives its owner then";
  EXPECT_EQ(message.get(), "wrong result");
}

}  // namespace
}  // namespace onehop::cli
