// SPDX-License-Identifier: Apache-2.0
// Signals and barriers as users see them: pairing, memory ordering, timeouts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

#include "support/errors.h"
#include "support/group_checks.h"
#include "support/ranks.h"
#include "support/sanitizers.h"

namespace onehop {
namespace {

using std::chrono::milliseconds;
using testing::error_of;
using ::testing::HasSubstr;
using testing::kSanitized;
using testing::kSlack;
using testing::run_process_group;
using testing::run_thread_group;
using testing::run_threads;

using Clock = std::chrono::steady_clock;

TEST(Signals, PairUpOneToOneOverManyRounds) {
  const auto body = [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    const Rank right{(group.rank().value + 1) % group.size()};
    const Rank left{(group.rank().value + group.size() - 1) % group.size()};
    const auto mine = buffer.as<std::int64_t>();
    const int rounds = kSanitized ? 200 : 1000;
    for (int i = 1; i <= rounds; ++i) {
      mine[0] = i;
      buffer.put_signal(right, 3);
      buffer.wait_signal(left, 3);
      ASSERT_EQ(buffer.peer_as<std::int64_t>(left)[0], i);  // acquire: sees the writes before the signal
      buffer.put_signal(left, 4);                           // "I have read it"
      buffer.wait_signal(right, 4);
    }
    // No signal is left over.
    EXPECT_EQ(error_of([&] { buffer.wait_signal(left, 3, milliseconds{20}); }).code(), ErrorCode::timeout);
    group.barrier();
  };
  run_thread_group(4, body);
  run_process_group(3, body);
}

TEST(Signals, SentAheadAreCounted) {
  run_thread_group(2, [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    const Rank other{1 - group.rank().value};
    for (int i = 0; i < 10; ++i) buffer.put_signal(other);
    group.barrier();
    for (int i = 0; i < 10; ++i) buffer.wait_signal(other);
    EXPECT_EQ(error_of([&] { buffer.wait_signal(other, 0, milliseconds{0}); }).code(), ErrorCode::timeout);
    group.barrier();
  });
}

TEST(Signals, ARankMaySignalItself) {
  run_thread_group(2, [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    buffer.put_signal(group.rank());
    buffer.wait_signal(group.rank());
    EXPECT_EQ(error_of([&] { buffer.wait_signal(group.rank(), 0, milliseconds{1}); }).code(),
              ErrorCode::timeout);
    group.barrier();
  });
}

TEST(Signals, ATimeoutConsumesNothingAndNamesTheRank) {
  run_thread_group(2, [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    if (group.rank() == Rank{0}) {
      const auto start = Clock::now();
      const Error error = error_of([&] { buffer.wait_signal(Rank{1}, 0, milliseconds{50}); });
      EXPECT_LT(Clock::now() - start, milliseconds{150} + kSlack);
      EXPECT_EQ(error.code(), ErrorCode::timeout);
      EXPECT_EQ(error.origin(), Rank{1});
      EXPECT_THAT(error.message(), HasSubstr("wait_signal: rank 0 waited 50 ms for rank 1"));
    }
    group.barrier();
    if (group.rank() == Rank{1}) buffer.put_signal(Rank{0});
    if (group.rank() == Rank{0}) buffer.wait_signal(Rank{1});
    group.barrier();
  });
}

TEST(Signals, ChannelsAndBuffersAndSubBuffersAreWhatTheySay) {
  run_thread_group(2, [](Group& group) {
    const SymmetricBuffer one = group.allocate(64);
    const SymmetricBuffer two = group.allocate(64);
    const Rank other{1 - group.rank().value};
    one.put_signal(other, 5);
    group.barrier();
    for (int channel = 0; channel < SymmetricBuffer::kDefaultChannels; ++channel) {
      if (channel != 5) {
        EXPECT_EQ(error_of([&] { one.wait_signal(other, channel, milliseconds{0}); }).code(),
                  ErrorCode::timeout);
      }
    }
    EXPECT_EQ(error_of([&] { two.wait_signal(other, 5, milliseconds{0}); }).code(), ErrorCode::timeout);
    one.sub(8, 8).wait_signal(other, 5);  // a sub-buffer shares the pad
    for (const int channel : {-1, SymmetricBuffer::kDefaultChannels}) {
      EXPECT_THAT(error_of([&] { one.wait_signal(other, channel); }).message(), HasSubstr("0..15"));
    }
    EXPECT_THAT(error_of([&] { one.wait_signal(Rank{-1}); }).message(), HasSubstr("rank -1"));
    group.barrier();
  });
}

TEST(Signals, ABufferHasAsManyChannelsAsItWasMadeWith) {
  for (const int channels : {1, 100, SymmetricBuffer::kMaxChannels}) {
    run_thread_group(2, [&](Group& group) {
      const SymmetricBuffer buffer = group.allocate(64, {.channels = channels});
      const Rank other{1 - group.rank().value};
      EXPECT_EQ(buffer.channels(), channels);
      EXPECT_EQ(buffer.sub(8, 8).channels(), channels);
      EXPECT_EQ(buffer.view().channels, channels);
      for (int i = 0; i < 3; ++i) {
        buffer.local()[0] = static_cast<std::byte>(i);
        buffer.put_signal(other, channels - 1);
        buffer.wait_signal(other, channels - 1);
        EXPECT_EQ(buffer.peer(other)[0], static_cast<std::byte>(i));
        buffer.barrier(channels - 1);
        buffer.barrier(0);
      }
      // Only these channels were used, and no data was taken for a signal.
      for (int channel = 0; channel < channels; channel += 1 + channels / 10) {
        EXPECT_EQ(error_of([&] { buffer.wait_signal(other, channel, milliseconds{0}); }).code(),
                  ErrorCode::timeout);
      }
      EXPECT_THAT(error_of([&] { buffer.wait_signal(other, channels); }).message(),
                  HasSubstr("is not within 0.."));
      group.barrier();
    });
  }
}

TEST(Signals, ThreadsOfOneRankUseDifferentChannelsAtOnce) {
  run_thread_group(2, [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    const Rank other{1 - group.rank().value};
    run_threads(4, [&](Rank channel) {
      for (int i = 0; i < 200; ++i) {
        buffer.put_signal(other, channel.value);
        buffer.wait_signal(other, channel.value);
        buffer.barrier(channel.value);
      }
    });
  });
}

TEST(Barriers, OrderMemory) {
  const auto body = [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(sizeof(std::int64_t) * 1000);
    const int rounds = kSanitized ? 30 : 200;
    for (int i = 1; i <= rounds; ++i) {
      for (std::int64_t& each : buffer.as<std::int64_t>()) each = i;
      i % 2 == 0 ? buffer.barrier(i % 16) : group.barrier();
      for (int r = 0; r < group.size(); ++r)
        ASSERT_THAT(buffer.peer_as<std::int64_t>(Rank{r}), ::testing::Each(i));
      i % 2 == 0 ? group.barrier() : buffer.barrier(i % 16);
    }
  };
  run_thread_group(4, body);
  run_process_group(3, body);
}

TEST(Barriers, ATimeoutNamesTheRankThatIsMissingAndEndsTheGroup) {
  for (const bool of_buffer : {false, true}) {
    run_thread_group(3, [&](Group& group) {
      const SymmetricBuffer buffer = group.allocate(64);
      const auto wait = [&] {
        of_buffer ? buffer.barrier(0, milliseconds{2000}) : group.barrier(milliseconds{2000});
      };
      if (group.rank() == Rank{2}) {
        // This is not a barrier, so the others' waits time out. This wait ends once they have given up.
        EXPECT_EQ(error_of([&] { buffer.wait_signal(Rank{0}); }).code(), ErrorCode::timeout);
      } else {
        const auto start = Clock::now();
        const Error error = error_of(wait);
        EXPECT_LT(Clock::now() - start, milliseconds{2100} + kSlack);
        EXPECT_EQ(error.code(), ErrorCode::timeout);
        EXPECT_EQ(error.origin(), Rank{2});
        EXPECT_THAT(error.message(), HasSubstr("waited 2000 ms for rank 2"));
      }
      EXPECT_EQ(error_of([&] { group.barrier(); }).code(), ErrorCode::timeout);
      EXPECT_EQ(error_of([&] { group.check(); }).code(), ErrorCode::timeout);
    });
  }
}

}  // namespace
}  // namespace onehop
