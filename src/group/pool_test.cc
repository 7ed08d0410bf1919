// SPDX-License-Identifier: Apache-2.0
#include "onehop/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "onehop/collectives.h"
#include "onehop/group.h"

#include "group/state.h"
#include "support/errors.h"
#include "support/ranks.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using testing::error_of;
using ::testing::HasSubstr;
using testing::run_thread_group;

constexpr std::size_t kUnit = SymmetricPool::kAlignment;

TEST(SymmetricPool, GivesRanksThatMakeTheSameCallsTheSameOffsets) {
  run_thread_group(3, [](Group& group) {
    constexpr std::size_t kBytes = 1 << 20;
    SymmetricPool pool(group.allocate(kBytes));
    std::mt19937 together(11);
    std::map<std::size_t, std::size_t> taken;  // offset, bytes
    std::string log;
    for (int i = 0; i < 5000; ++i) {
      if (taken.empty() || together() % 5 < 3) {
        const std::size_t bytes = 1 + together() % (together() % 8 == 0 ? 100'000 : 3000);
        try {
          std::byte* const data = pool.allocate(bytes);
          const std::size_t offset = pool.offset_of(data);
          ASSERT_EQ(reinterpret_cast<std::uintptr_t>(data) % kUnit, 0u);
          ASSERT_LE(offset + bytes, kBytes);
          const auto next = taken.lower_bound(offset);
          ASSERT_TRUE(next == taken.end() || offset + bytes <= next->first) << "it overlaps the next one";
          ASSERT_TRUE(next == taken.begin() || std::prev(next)->first + std::prev(next)->second <= offset)
              << "it overlaps the one before";
          taken[offset] = bytes;
          log += std::to_string(offset) + " ";
        } catch (const Error& error) {
          ASSERT_EQ(error.code(), ErrorCode::out_of_resources);
          log += "full ";
        }
      } else {
        const auto victim = std::next(taken.begin(), static_cast<std::ptrdiff_t>(together() % taken.size()));
        pool.free(pool.buffer().local() + victim->first);
        taken.erase(victim);
      }
    }
    EXPECT_THAT(log, HasSubstr("full")) << "the pool is small enough to fill up";
    const std::string digest = std::to_string(std::hash<std::string>{}(log));
    EXPECT_THAT(group.all_gather(digest), Each(digest));
    for (const auto& [offset, bytes] : taken) pool.free(pool.buffer().local() + offset);
    EXPECT_EQ(pool.free_bytes(), kBytes);
    EXPECT_EQ(pool.offset_of(pool.allocate(kBytes)), 0u) << "in one piece again";
  });
}

TEST(SymmetricPool, TakesTheShortestRunThatFitsAndOfTheseTheFirst) {
  run_thread_group(2, [](Group& group) {
    SymmetricPool pool(group.allocate(20 * kUnit));
    const auto take = [&](std::size_t units) { return pool.allocate(units * kUnit); };
    // Free at the end: 3 units at 0, 2 at 4, 2 at 7, 10 at 10.
    std::byte* const three = take(3);
    (void)take(1);
    std::byte* const two = take(2);
    (void)take(1);
    std::byte* const other_two = take(2);
    (void)take(1);
    for (std::byte* const each : {other_two, three, two}) pool.free(each);
    EXPECT_EQ(take(2), two);
    EXPECT_EQ(take(1), other_two);
    EXPECT_EQ(pool.allocate(1), other_two + kUnit) << "rounded up to a unit";
    EXPECT_EQ(pool.offset_of(take(4)), 10 * kUnit);
    EXPECT_EQ(take(3), three);
  });
}

TEST(SymmetricPool, JoinsRunsThatTouchWhateverTheOrderInWhichTheyAreFreed) {
  run_thread_group(2, [](Group& group) {
    SymmetricPool pool(group.allocate(4 * kUnit));
    std::vector<std::size_t> order{0, 1, 2, 3};
    do {
      std::vector<std::byte*> parts;
      for (int i = 0; i < 4; ++i) parts.push_back(pool.allocate(kUnit));
      for (const std::size_t i : order) pool.free(parts[i]);
      std::byte* const whole = pool.allocate(4 * kUnit);
      EXPECT_EQ(whole, pool.buffer().local());
      pool.free(whole);
    } while (std::next_permutation(order.begin(), order.end()));
  });
}

TEST(SymmetricPool, SaysWhatIsFreeWhenItHasNoRoom) {
  run_thread_group(2, [](Group& group) {
    SymmetricPool pool(group.allocate(4 * kUnit));
    std::byte* const first = pool.allocate(kUnit);
    (void)pool.allocate(kUnit);
    pool.free(first);
    const Error error = error_of([&] { (void)pool.allocate(3 * kUnit - 1); });
    EXPECT_EQ(error.code(), ErrorCode::out_of_resources);
    EXPECT_THAT(error.message(), AllOf(HasSubstr("no 1535 bytes"), HasSubstr("longest free run has 1024"),
                                       HasSubstr("1536 of its 2048 bytes are free")));
    EXPECT_EQ(error_of([&] { (void)pool.allocate(SIZE_MAX); }).code(), ErrorCode::out_of_resources);
    EXPECT_EQ(error_of([&] { (void)pool.allocate(0); }).code(), ErrorCode::invalid_argument);
    EXPECT_EQ(pool.free_bytes(), 3 * kUnit) << "nothing was changed";
  });
}

TEST(SymmetricPool, RefusesPointersThatAreNotItsOwn) {
  run_thread_group(2, [](Group& group) {
    SymmetricPool pool(group.allocate(4 * kUnit));
    std::byte* const data = pool.allocate(2 * kUnit);
    int local = 0;
    for (void* const wrong : std::initializer_list<void*>{&local, nullptr, data + 1, data + kUnit}) {
      const Error error = error_of([&] { pool.free(wrong); });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.message(), HasSubstr("did not come from this symmetric pool"));
    }
    pool.free(data);
    EXPECT_THAT(error_of([&] { pool.free(data); }).message(), HasSubstr("freed already"));
    EXPECT_EQ(pool.offset_of(data + 5), 5u);
    EXPECT_THAT(error_of([&] { (void)pool.offset_of(&local); }).message(), HasSubstr("is not in this"));
    EXPECT_THAT(error_of([&] { (void)pool.offset_of(data + 4 * kUnit); }).message(),
                HasSubstr("is not in this"));
    SymmetricPool moved = std::move(pool);
    EXPECT_THAT(error_of([&] { (void)pool.allocate(1); }).message(),  // NOLINT(bugprone-use-after-move)
                HasSubstr("moved from"));
    EXPECT_EQ(moved.free_bytes(), 4 * kUnit);
  });
}

TEST(SymmetricPool, NeedsMemoryThatIsAlignedAndLongEnough) {
  run_thread_group(2, [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(2 * kUnit + 100);
    for (const SymmetricBuffer& each : {buffer.sub(4, kUnit), buffer.sub(0, kUnit - 1)})
      EXPECT_EQ(error_of([&] { SymmetricPool pool(each); }).code(), ErrorCode::invalid_argument);
    EXPECT_EQ(SymmetricPool(buffer).free_bytes(), 2 * kUnit) << "whole units only";
    EXPECT_THAT(error_of([] { SymmetricPool pool{SymmetricBuffer()}; }).message(), HasSubstr("empty"));
  });
}

TEST(SymmetricPool, IsUsedByManyThreadsAtOnce) {
  run_thread_group(2, [](Group& group) {
    SymmetricPool pool(group.allocate(256 * kUnit));
    std::vector<std::thread> threads;
    for (int t = 1; t <= 4; ++t) {
      threads.emplace_back([&pool, t] {
        std::mt19937 own(static_cast<unsigned>(t));
        for (int i = 0; i < 500; ++i) {
          const std::size_t bytes = 1 + own() % (16 * kUnit);
          std::byte* const data = pool.allocate(bytes);
          std::memset(data, t, bytes);
          EXPECT_TRUE(std::all_of(data, data + bytes, [&](std::byte b) { return b == std::byte(t); }));
          pool.free(data);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(pool.free_bytes(), 256 * kUnit);
  });
}

TEST(SymmetricPool, PartsAreSymmetricMemoryToCollectivesAndPeers) {
  run_thread_group(3, [](Group& group) {
    constexpr std::size_t kCount = 1000;
    SymmetricPool pool(group.allocate(1 << 20));
    (void)pool.allocate(5000);
    auto* const data = reinterpret_cast<float*>(pool.allocate(kCount * sizeof(float)));
    EXPECT_NE(group.state().find_buffer(data, kCount * sizeof(float)).first, nullptr);
    std::fill_n(data, kCount, static_cast<float>(group.rank().value + 1));
    (void)all_reduce(group, data, data, kCount, DType::f32, ReduceOp::sum);
    EXPECT_TRUE(std::all_of(data, data + kCount, [](float each) { return each == 6; }));
    group.barrier();
    for (int r = 0; r < 3; ++r) {
      const SymmetricBuffer part = pool.buffer().sub(pool.offset_of(data), kCount * sizeof(float));
      EXPECT_EQ(part.peer_as<float>(Rank{r})[kCount - 1], 6.0F);
    }
    group.barrier();
  });
}

}  // namespace
}  // namespace onehop
