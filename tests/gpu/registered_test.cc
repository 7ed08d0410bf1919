// SPDX-License-Identifier: Apache-2.0
// Memory that ranks on GPUs register: all ranks reach it, find it again while it exists, and leave it to its
// user at the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "onehop/device_memory.h"

#include "gpu/on_gpus.h"
#include "group/state.h"

namespace onehop::testing::gpu_registered_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CudaRegistered : public OnGpus {};
INSTANTIATE_TEST_SUITE_P(, CudaRegistered, all_gpu_ranks(), gpu_ranks_name);

/// Where each rank's memory begins in its allocation: at a different offset on each.
std::size_t offset_of(const Group& group) {
  return 256 * (static_cast<std::size_t>(group.rank().value) + 1);
}

/// Follows the rule for registered memory: no rank frees it while another has it mapped.
void let_go(Group& group, SymmetricBuffer& buffer) {
  buffer = {};
  group.barrier();
}

bool finds(Group& group, const std::byte* data, std::size_t bytes) {
  return group.state().find_buffer(data, bytes).first != nullptr;
}

void expect_shared(Group& group, Gpu& gpu, const SymmetricBuffer& buffer) {
  const std::size_t words = buffer.bytes() / 4;
  const int n = group.size();
  const int rank = group.rank().value;
  const auto word_of = [&](int r) { return part_of(r, words); };
  const auto expect_all = [&](Rank where, std::uint32_t word) {
    for (const std::uint32_t each : gpu.read(buffer.peer_as<std::uint32_t>(where).data(), words))
      ASSERT_EQ(each, word) << "rank " << where.value << "'s memory, as rank " << rank << " sees it";
  };
  gpu.fill(buffer.local(), word_of(rank), words);
  gpu.wait();
  buffer.barrier();  // of the hosts
  for (int r = 0; r < n; ++r) expect_all(Rank{r}, word_of(r));
  buffer.barrier();
  const Rank right{(rank + 1) % n};
  gpu.fill(buffer.peer(right), ~word_of(rank), words);
  buffer.barrier(gpu.stream());
  group.synchronize(gpu.stream());
  expect_all(Rank{rank}, ~word_of((rank + n - 1) % n));
  buffer.barrier();
}

TEST_P(CudaRegistered, MemoryIsReachedByEveryRankAndStaysItsUsers) {
  run([](Group& group, Gpu& gpu) {
    constexpr std::size_t kWords = 300'001;
    std::byte* const whole = gpu.allocate(offset_of(group) + kWords * 4 + 64);
    std::byte* const data = whole + offset_of(group);
    gpu.fill(whole, 0x5eed, (offset_of(group) + kWords * 4 + 64) / 4);
    gpu.wait();
    SymmetricBuffer buffer = group.register_buffer(data, kWords * 4);
    EXPECT_EQ(buffer.local(), data);
    EXPECT_EQ(buffer.bytes(), kWords * 4);
    const std::vector<std::uint32_t> untouched(kWords, 0x5eed);
    EXPECT_TRUE(gpu.read(reinterpret_cast<std::uint32_t*>(data), kWords) == untouched) << "it is not zeroed";
    buffer.barrier();

    expect_shared(group, gpu, buffer);
    expect_shared(group, gpu, buffer.sub(400, 4000));
    gpu.fill(data, 77, kWords);
    gpu.wait();
    let_go(group, buffer);
    const std::vector<std::uint32_t> kept(kWords, 77);
    EXPECT_TRUE(gpu.read(reinterpret_cast<std::uint32_t*>(data), kWords) == kept) << "it is not freed";
    expect_works(group, gpu);
  });
}

TEST_P(CudaRegistered, MemoryIsUsedByKernelsAndCollectives) {
  run([](Group& group, Gpu& gpu) {
    constexpr unsigned kBlocks = 24;
    constexpr std::uint32_t kWords = 777;
    constexpr std::size_t kCount = 50'000;
    const UserKernels kernels(gpu);
    std::byte* const whole = gpu.allocate(offset_of(group) + kCount * 4);
    SymmetricBuffer buffer =
        group.register_buffer(whole + offset_of(group), kCount * 4, {.channels = kBlocks});
    EXPECT_EQ(buffer.channels(), static_cast<int>(kBlocks));
    auto* const counts = gpu.make<std::uint32_t>(2);
    group.barrier();
    kernels.ring(kBlocks, 256,
                 {.view = buffer.sub(64, kBlocks * kWords * 4).device_view(),
                  .words = kWords,
                  .rounds = 200,
                  .wrong = counts,
                  .gave_up = counts + 1});
    buffer.barrier(gpu.stream(), 7);
    group.synchronize(gpu.stream());
    EXPECT_THAT(gpu.read(counts, 2), ::testing::Each(0u));

    auto* const words = reinterpret_cast<std::uint32_t*>(buffer.local());
    for (std::size_t i = 0; i < 20; ++i) {
      gpu.fill(words, part_of(group.rank().value, i), kCount);
      (void)all_reduce(group, words, words, kCount, DType::u32, ReduceOp::sum, gpu.stream());
      group.synchronize(gpu.stream());
      for (const std::uint32_t each : gpu.read(words, kCount)) ASSERT_EQ(each, sum_of(n(), i));
    }
    let_go(group, buffer);
  });
}

TEST_P(CudaRegistered, MemoryOfVmmAndOfCudaMallocMakeOneBuffer) {
  run([](Group& group, Gpu& gpu) {
    constexpr std::size_t kBytes = 400'000;
    const bool by_descriptor = group.rank().value % 2 == 0;
    std::optional<DeviceMemory> made;
    if (by_descriptor) made = DeviceMemory::create(group.device(), offset_of(group) + kBytes);
    std::byte* const data =
        (made ? made->data() : gpu.allocate(offset_of(group) + kBytes)) + offset_of(group);
    SymmetricBuffer buffer = group.register_buffer(data, kBytes);
    expect_shared(group, gpu, buffer);
    EXPECT_TRUE(finds(group, data, kBytes)) << "the driver gives both kinds an id";
    let_go(group, buffer);
  });
}

TEST_P(CudaRegistered, BuffersAreFoundByTheirAddressesWhileTheyLive) {
  run([](Group& group, Gpu& gpu) {
    constexpr std::size_t kBytes = 1 << 20;
    std::byte* const whole = gpu.allocate(3 * kBytes);
    std::byte* const data = whole + kBytes;
    SymmetricBuffer buffer = group.register_buffer(data, kBytes);
    EXPECT_TRUE(finds(group, data, kBytes));
    EXPECT_TRUE(finds(group, data + 100, 4));
    EXPECT_FALSE(finds(group, data - 4, 8));
    EXPECT_FALSE(finds(group, data + 4, kBytes));
    EXPECT_FALSE(finds(group, whole, 4));
    SymmetricBuffer again = group.register_buffer(data, kBytes);
    for (int r = 0; r < n(); ++r) EXPECT_EQ(again.peer(Rank{r}), buffer.peer(Rank{r})) << "opened once";
    let_go(group, buffer);
    EXPECT_TRUE(finds(group, data, kBytes));
    expect_shared(group, gpu, again);
    let_go(group, again);
    EXPECT_FALSE(finds(group, data, kBytes));
  });
}

TEST_P(CudaRegistered, OneRanksUnusableMemoryIsEveryRanksErrorAndTheGroupWorksOn) {
  run([](Group& group, Gpu& gpu) {
    constexpr std::size_t kBytes = 4096;
    std::byte* const data = gpu.allocate(kBytes);
    const auto failure = [&](std::byte* with, std::size_t bytes) {
      try {
        (void)group.register_buffer(with, bytes);
      } catch (const Error& error) {
        EXPECT_EQ(error.origin(), Rank{1}) << error.what();
        return error;
      }
      ADD_FAILURE() << "nothing was thrown";
      return Error(ErrorCode::system, "");
    };
    const bool odd = group.rank() == Rank{1};
    std::vector<std::byte> ordinary(kBytes);
    const Error host = failure(odd ? ordinary.data() : data, kBytes);
    EXPECT_EQ(host.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(host.message(), AllOf(HasSubstr("register_buffer: rank 1"), HasSubstr("host memory")));
    EXPECT_EQ(failure(odd ? nullptr : data, kBytes).code(), ErrorCode::invalid_argument);
    EXPECT_EQ(failure(data, odd ? 0 : kBytes).code(), ErrorCode::invalid_argument);
    const Error sizes = failure(data, odd ? kBytes - 8 : kBytes);
    EXPECT_EQ(sizes.code(), ErrorCode::mismatch);
    EXPECT_THAT(sizes.message(),
                AllOf(HasSubstr("rank 0 registers 4096 bytes"), HasSubstr("rank 1 registers 4088")));
    expect_works(group, gpu);
    SymmetricBuffer buffer = group.register_buffer(data, kBytes);
    expect_shared(group, gpu, buffer);
    let_go(group, buffer);
  });
}

TEST_P(CudaRegistered, RegisteringOverAndOverLeavesNothing) {
  run([](Group& group, Gpu& gpu) {
    constexpr std::size_t kBytes = 1 << 20;
    std::byte* const data = gpu.allocate(kBytes);
    const auto cycle = [&] {
      SymmetricBuffer buffer = group.register_buffer(data, kBytes);
      let_go(group, buffer);
    };
    for (int i = 0; i < 10; ++i) cycle();
    // Threads share the counted resources: all of them stand still while one of them counts.
    group.barrier();
    const std::size_t free = gpu.free_bytes();
    const Footprint before = footprint();
    group.barrier();
    for (int i = 0; i < 100; ++i) cycle();
    group.barrier();
    constexpr std::size_t kOwnChunk = std::size_t{4} << 20;  // of the driver
    EXPECT_GE(gpu.free_bytes() + kOwnChunk, free);
    // With CUDA IPC the last buffer's pad is freed when the next one is allocated: a peer may map it until
    // then.
    const int last = group.share_by() == ShareBy::ipc ? 1 : 0;
    EXPECT_LE(footprint().descriptors, before.descriptors + last);
    EXPECT_LE(footprint().mappings, before.mappings + 16);
    group.barrier();
  });
}

// With threads: between processes, the driver does not define what becomes of a peer's mapping.
TEST(CudaRegisteredByThreads, MemoryThatIsFreedAndAllocatedAgainIsNotTakenForTheBuffer) {
  ONEHOP_NEED_GPUS(2);
  run_thread_group(
      2,
      [](Group& group) {
        constexpr std::size_t kBytes = 8 << 20;
        Gpu gpu(group.device());
        std::byte* const first = gpu.allocate(kBytes);
        const SymmetricBuffer stale = group.register_buffer(first, kBytes);
        EXPECT_TRUE(finds(group, first, kBytes));
        std::byte* second = nullptr;
        for (Rank r{0}; r.value < group.size(); ++r.value) {
          group.barrier();
          if (group.rank() != r) continue;
          // One rank at a time, so that it gets the same address back.
          gpu.free(first);
          EXPECT_FALSE(finds(group, first, kBytes));
          second = gpu.allocate(kBytes);
          EXPECT_FALSE(finds(group, second, kBytes));
        }
        SymmetricBuffer fresh = group.register_buffer(second, kBytes);
        EXPECT_TRUE(finds(group, second, kBytes));
        expect_shared(group, gpu, fresh);
        let_go(group, fresh);
      },
      on_gpus());
}

}  // namespace
}  // namespace onehop::testing::gpu_registered_test
