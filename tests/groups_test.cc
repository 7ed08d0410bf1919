// Groups as users see them: joining, memory, signals, splitting, leaving.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "support/ranks.h"

namespace onehop {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::run_process_group;
using testing::run_thread_group;
using testing::run_threads;

TEST(Group, ThreadsJoinAllocateAndSeeEachOthersMemory) {
  run_thread_group(4, [](Group& group) {
    SymmetricBuffer buffer = group.allocate(1000);
    EXPECT_EQ(buffer.bytes(), 1000u);
    for (const std::byte b : buffer.as<std::byte>()) ASSERT_EQ(b, std::byte{0});
    std::memset(buffer.local(), 10 + group.rank().value, buffer.bytes());
    buffer.barrier();
    for (int r = 0; r < group.size(); ++r) {
      for (const std::byte b : buffer.peer_as<std::byte>(Rank{r})) ASSERT_EQ(static_cast<int>(b), 10 + r);
    }
    buffer.barrier();
  });
}

TEST(Group, ProcessesJoinAllocateAndSeeEachOthersMemory) {
  run_process_group(4, [](Group& group) {
    SymmetricBuffer buffer = group.allocate(1 << 20);
    std::memset(buffer.local(), 10 + group.rank().value, buffer.bytes());
    buffer.barrier();
    for (int r = 0; r < group.size(); ++r) {
      for (const std::byte b : buffer.peer_as<std::byte>(Rank{r})) ASSERT_EQ(static_cast<int>(b), 10 + r);
    }
    buffer.barrier();
  });
}

TEST(Group, AllReducesAcrossProcesses) {
  run_process_group(3, [](Group& group) {
    for (const std::size_t count : {1ul, 1000ul, 100000ul, 5000000ul}) {
      std::vector<float> data(count);
      for (std::size_t i = 0; i < count; ++i)
        data[i] = static_cast<float>(i % 1000 + static_cast<std::size_t>(group.rank().value));
      all_reduce(group, std::span<float>(data));
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], static_cast<float>(3 * (i % 1000) + 3)) << i;
    }
  });
}

}  // namespace
}  // namespace onehop
