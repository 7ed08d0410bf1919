// SPDX-License-Identifier: Apache-2.0
// Symmetric memory as users see it: allocation, sub-buffers, errors, and use after its group has gone.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <cstdint>
#include <cstring>
#include <utility>

#include "support/errors.h"
#include "support/group_checks.h"
#include "support/ranks.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using testing::error_of;
using testing::expect_shared;
using testing::expect_usable;
using ::testing::HasSubstr;
using testing::run_process_group;
using testing::run_thread_group;

TEST(SymmetricMemory, OfThreadsIsZeroedAndSeenByAll) {
  run_thread_group(4, [](Group& group) {
    for (const std::size_t bytes : {1ul, 1000ul, 4096ul, 100001ul}) {
      const SymmetricBuffer buffer = group.allocate(bytes);
      EXPECT_EQ(buffer.bytes(), bytes);
      EXPECT_EQ(buffer.rank(), group.rank());
      EXPECT_EQ(buffer.size(), 4);
      for (const std::byte b : buffer.as<std::byte>()) ASSERT_EQ(b, std::byte{0});
      buffer.barrier();
      expect_shared(group, buffer);
    }
  });
}

TEST(SymmetricMemory, OfProcessesIsZeroedAndSeenByAll) {
  run_process_group(4, [](Group& group) {
    for (const std::size_t bytes : {1000ul, 1ul << 20}) {
      const SymmetricBuffer buffer = group.allocate(bytes);
      for (const std::byte b : buffer.as<std::byte>()) ASSERT_EQ(b, std::byte{0});
      buffer.barrier();
      expect_shared(group, buffer);
    }
  });
}

TEST(SymmetricMemory, SubBuffersAreTheRangeTheyNameOnEveryRank) {
  run_thread_group(3, [](Group& group) {
    const SymmetricBuffer whole = group.allocate(1024);
    const SymmetricBuffer part = whole.sub(100, 200).sub(50, 100);
    EXPECT_EQ(part.bytes(), 100u);
    EXPECT_EQ(part.local(), whole.local() + 150);
    const PeerView view = part.view();
    EXPECT_EQ(view.rank, group.rank().value);
    EXPECT_EQ(view.size, 3);
    EXPECT_EQ(view.bytes, 100u);
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(part.peer(Rank{r}), whole.peer(Rank{r}) + 150);
      EXPECT_EQ(view.peers[r] + view.offset, part.peer(Rank{r}));
    }
    EXPECT_EQ(whole.local(), whole.peer(group.rank()));
    EXPECT_EQ(whole.sub(1024, 0).bytes(), 0u);
    for (const auto& [offset, bytes] :
         {std::pair{1025ul, 0ul}, {0ul, 1025ul}, {1ul, 1024ul}, {SIZE_MAX, 2ul}, {2ul, SIZE_MAX}}) {
      const Error error = error_of([&, o = offset, b = bytes] { (void)whole.sub(o, b); });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.message(),
                  AllOf(HasSubstr(fmt::format("{} bytes at offset {}", bytes, offset)), HasSubstr("1024")));
    }
    EXPECT_THAT(error_of([&] { (void)part.sub(0, 101); }).message(), HasSubstr("buffer of 100 bytes"));
    for (const int r : {-1, 3}) {
      EXPECT_THAT(error_of([&, r] { (void)whole.peer(Rank{r}); }).message(),
                  HasSubstr(fmt::format("rank {}", r)));
    }
    expect_shared(group, part);
  });
}

TEST(SymmetricMemory, AnEmptyBufferSaysSo) {
  const SymmetricBuffer empty;
  EXPECT_EQ(empty.bytes(), 0u);
  EXPECT_THAT(error_of([&] { (void)empty.local(); }).message(), HasSubstr("empty"));
  EXPECT_THAT(error_of([&] { empty.barrier(); }).message(), HasSubstr("empty"));
  EXPECT_THAT(error_of([&] { (void)empty.sub(0, 0); }).message(), HasSubstr("empty"));
}

TEST(SymmetricMemory, DifferentSizesAreAMismatchOnAllRanksNamingThem) {
  for (const bool processes : {false, true}) {
    const auto body = [](Group& group) {
      const Error error = error_of([&] { (void)group.allocate(group.rank() == Rank{2} ? 5000 : 4000); });
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_EQ(error.origin(), Rank{2});
      EXPECT_THAT(error.message(),
                  AllOf(HasSubstr("rank 0 asks for 4000 bytes"), HasSubstr("rank 2 for 5000")));
      expect_usable(group);
      expect_shared(group, group.allocate(100));
    };
    processes ? run_process_group(3, body) : run_thread_group(3, body);
  }
}

TEST(SymmetricMemory, DifferentChannelsAreAMismatchOnAllRanksNamingThem) {
  for (const bool processes : {false, true}) {
    const auto body = [](Group& group) {
      const BufferOptions own{.channels = group.rank() == Rank{1} ? 17 : 16};
      const Error error = error_of([&] { (void)group.allocate(4000, own); });
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_EQ(error.origin(), Rank{1});
      EXPECT_THAT(error.message(),
                  AllOf(HasSubstr("rank 0 asks for 16 channels"), HasSubstr("rank 1 for 17")));
      expect_usable(group);
      expect_shared(group, group.allocate(100, {.channels = 17}));
    };
    processes ? run_process_group(3, body) : run_thread_group(3, body);
  }
}

TEST(SymmetricMemory, ChannelsOutOfRangeAreRefusedOnAllRanksAndTheGroupStaysUsable) {
  run_thread_group(3, [](Group& group) {
    for (const int channels : {0, -1, SymmetricBuffer::kMaxChannels + 1, INT_MAX, INT_MIN}) {
      const Error error = error_of([&] { (void)group.allocate(64, {.channels = channels}); });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      EXPECT_THAT(error.message(), HasSubstr(fmt::format("{} channels are not within 1..4096", channels)));
    }
    expect_usable(group);
  });
}

TEST(SymmetricMemory, NothingAndTooMuchAreRefusedOnAllRanksAndTheGroupStaysUsable) {
  run_thread_group(3, [](Group& group) {
    for (const std::size_t bytes : {0ul, SIZE_MAX, 1ul << 50}) {
      const Error error = error_of([&] { (void)group.allocate(bytes); });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      EXPECT_THAT(error.message(), HasSubstr(fmt::format(" {} bytes", bytes)));
    }
    // More than any machine that runs this has, but not absurd.
    const Error error = error_of([&] { (void)group.allocate(std::size_t{1} << 46); });
    EXPECT_EQ(error.code(), ErrorCode::out_of_resources) << error.what();
    EXPECT_THAT(error.message(), AllOf(HasSubstr("allocate: rank 0"), HasSubstr("the machine has")));
    expect_usable(group);
    expect_shared(group, group.allocate(100));
  });
}

TEST(SymmetricMemory, CannotBeMadeOfMemoryThatAHostRankHasAndTheGroupStaysUsable) {
  for (const bool processes : {false, true}) {
    const auto body = [](Group& group) {
      std::vector<std::byte> data(4096);
      const Error error = error_of([&] { (void)group.register_buffer(data.data(), data.size()); });
      EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
      EXPECT_THAT(error.message(), HasSubstr("Group::allocate"));
      expect_usable(group);
    };
    processes ? run_process_group(3, body) : run_thread_group(3, body);
  }
}

TEST(SymmetricMemory, OneRanksOddSizeIsEveryRanksError) {
  run_thread_group(3, [](Group& group) {
    const Error error = error_of([&] { (void)group.allocate(group.rank() == Rank{1} ? 0 : 100); });
    EXPECT_EQ(error.origin(), Rank{1});
    EXPECT_THAT(error.message(), HasSubstr("allocate: rank 1"));
    expect_usable(group);
  });
}

TEST(SymmetricMemory, OutlivesItsGroup) {
  const auto body = [](Group& joined) {
    SymmetricBuffer buffer;
    {
      Group group = std::move(joined);
      buffer = group.allocate(10000);
      std::memset(buffer.local(), 40 + group.rank().value, buffer.bytes());
      group.barrier();
    }
    // The group is gone, but the memory is not; calls that wait for peers report that.
    for (int r = 0; r < 3; ++r) EXPECT_EQ(static_cast<int>(buffer.peer(Rank{r})[9999]), 40 + r);
    EXPECT_THAT(error_of([&] { buffer.barrier(); }).message(), HasSubstr("has left the group"));
    EXPECT_THAT(error_of([&] { buffer.put_signal(Rank{0}); }).message(), HasSubstr("has left the group"));
    EXPECT_THAT(error_of([&] { buffer.wait_signal(Rank{0}); }).message(), HasSubstr("has left the group"));
    EXPECT_EQ(buffer.sub(0, 10).size(), 3);
  };
  run_thread_group(3, body);
  run_process_group(3, body);
}

}  // namespace
}  // namespace onehop
