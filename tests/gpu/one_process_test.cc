// SPDX-License-Identifier: Apache-2.0
// Ranks of one process: one thread that drives all of them, or a thread for each; the latter also for
// compute-sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "onehop/group.h"

#include "gpu/on_gpus.h"

namespace onehop::testing::gpu_one_process_test {
namespace {

TEST(CudaJoinLocal, OneThreadDrivesAllRanks) {
  ONEHOP_NEED_GPUS(2);
  const int n = gpus_unavailable(4, Sharing::no).empty() ? 4 : 2;
  std::vector<DeviceId> devices;
  std::vector<std::unique_ptr<Gpu>> gpus;
  for (int r = 0; r < n; ++r) {
    devices.emplace_back(r);
    gpus.push_back(std::make_unique<Gpu>(devices.back()));
  }
  std::vector<Group> groups = Group::join_local(devices, on_gpus());
  ASSERT_EQ(groups.size(), gpus.size());
  constexpr std::size_t kRounds = 40;
  constexpr std::size_t kCount = 60'000;
  std::vector<std::uint32_t*> data;
  std::vector<EndsLog> logs;
  for (const std::unique_ptr<Gpu>& gpu : gpus) {
    data.push_back(gpu->make<std::uint32_t>(kCount));
    logs.emplace_back(*gpu, kRounds);
  }
  for (std::size_t i = 0; i < kRounds; ++i) {
    for (std::size_t r = 0; r < groups.size(); ++r) {
      gpus[r]->fill(data[r], part_of(static_cast<int>(r), i), kCount);
      reduce(groups[r], *gpus[r], data[r], data[r], kCount,
             i % 2 == 0 ? Algorithm::one_shot : Algorithm::two_shot);
      logs[r].note(i, data[r], kCount);
    }
  }
  for (std::size_t r = 0; r < groups.size(); ++r) {
    EXPECT_EQ(groups[r].rank(), Rank{static_cast<int>(r)});
    groups[r].synchronize(gpus[r]->stream());
    logs[r].expect([&](std::size_t i) { return sum_of(n, i); });
    EXPECT_THAT(groups[r].usage(), ::testing::ElementsAre(0, kRounds / 2, kRounds / 2));
  }
  // Host barriers need a thread per rank.
  on_every_rank(groups, [&](Group& group) {
    const SymmetricBuffer buffer = group.allocate(1000);
    EXPECT_EQ(buffer.bytes(), 1000u);
    group.barrier();
  });
}

TEST(CudaJoinLocal, OneThreadMakesCallsOfAllRanksInOneScope) {
  ONEHOP_NEED_GPUS(2);
  constexpr int kRanks = 2;
  std::vector<DeviceId> devices;
  std::vector<std::unique_ptr<Gpu>> gpus;
  for (int r = 0; r < kRanks; ++r) {
    devices.emplace_back(r);
    gpus.push_back(std::make_unique<Gpu>(devices.back()));
  }
  std::vector<Group> groups = Group::join_local(devices, on_gpus());
  // Large enough that each send needs the other rank to receive.
  constexpr std::size_t kCount = 12'000'011;
  std::vector<std::uint32_t*> mine;
  std::vector<std::uint32_t*> theirs;
  std::vector<std::uint32_t*> sums;
  for (std::size_t r = 0; r < kRanks; ++r) {
    mine.push_back(gpus[r]->make<std::uint32_t>(kCount));
    theirs.push_back(gpus[r]->make<std::uint32_t>(kCount));
    sums.push_back(gpus[r]->make<std::uint32_t>(kCount));
    gpus[r]->fill(mine[r], 100 + static_cast<std::uint32_t>(r), kCount);
  }
  GroupCall scope;
  for (std::size_t r = 0; r < kRanks; ++r) {
    const Stream stream = gpus[r]->stream();
    const Rank other{1 - static_cast<int>(r)};
    EXPECT_EQ(all_reduce(groups[r], mine[r], sums[r], kCount, DType::u32, ReduceOp::sum, stream),
              Algorithm::none);
    (void)send(groups[r], mine[r], kCount, DType::u32, other, stream);
    (void)recv(groups[r], theirs[r], kCount, DType::u32, other, stream);
  }
  scope.end();
  for (std::size_t r = 0; r < kRanks; ++r) {
    groups[r].synchronize(gpus[r]->stream());
    const std::vector<std::uint32_t> received(kCount, 101 - static_cast<std::uint32_t>(r));
    EXPECT_TRUE(gpus[r]->read(theirs[r], kCount) == received);
    const std::vector<std::uint32_t> added(kCount, 201);
    EXPECT_TRUE(gpus[r]->read(sums[r], kCount) == added);
  }
}

// --- for compute-sanitizer: little of everything, in one process ---

TEST(CudaSmall, TwoRanksAsThreadsDoALittleOfEverything) {
  ONEHOP_NEED_GPUS(2);
  JoinOptions options = on_gpus();
  options.scratch_bytes = 64 << 10;
  run_thread_group(
      2,
      [](Group& group) {
        Gpu gpu(group.device());
        const UserKernels kernels(gpu);
        const SymmetricBuffer buffer = group.allocate(64 << 10);
        for (const DType type : {DType::f32, DType::bf16, DType::u8}) {
          for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
            for (const std::size_t count : {1ul, 1003ul, 20'011ul}) {
              const std::size_t bytes = count * size_of(type);
              std::byte* const data = gpu.allocate(bytes);
              const std::vector<std::byte> ones(bytes, std::byte{1});
              gpu.upload(data, ones.data(), bytes);
              (void)all_reduce(group, data, data, count, type, ReduceOp::max, gpu.stream(),
                               {.algorithm = algorithm, .timeout = {}});
              group.synchronize(gpu.stream());
              EXPECT_EQ(gpu.read(data, bytes), ones);
              group.barrier();
              gpu.free(data);
            }
          }
        }
        auto* const words = gpu.make<std::uint32_t>(600);
        gpu.fill(words, part_of(group.rank().value, 5), 600);
        const std::size_t reduced = reduce_many(group, gpu, 30, words, words);
        group.synchronize(gpu.stream());
        EXPECT_THAT(gpu.read(words, reduced), ::testing::Each(sum_of(2, 5)));
        const Rank other{1 - group.rank().value};
        buffer.barrier(gpu.stream());
        buffer.put_signal(gpu.stream(), other, 1);
        buffer.wait_signal(gpu.stream(), other, 1);
        auto* const counts = gpu.make<std::uint32_t>(2);
        kernels.ring(2, 64,
                     {.view = buffer.device_view(),
                      .words = 100,
                      .rounds = 3,
                      .wrong = counts,
                      .gave_up = counts + 1});
        group.synchronize(gpu.stream());
        EXPECT_THAT(gpu.read(counts, 2), ::testing::Each(0u));
        group.barrier();
      },
      options);
}

TEST(CudaSmall, TwoRanksAsThreadsMakeEveryCollective) {
  ONEHOP_NEED_GPUS(2);
  JoinOptions options = on_gpus();
  options.scratch_bytes = 64 << 10;
  const auto body = [](Group& group) {
    Gpu gpu(group.device());
    constexpr std::size_t kMost = 1'400'003;  // more than packets carry
    constexpr std::size_t kRoom = 2 * 2 * kMost + 64;
    auto* const in = gpu.allocate(kRoom);
    auto* const out = gpu.allocate(kRoom);
    const std::vector<std::byte> ones(kRoom, std::byte{1});
    gpu.upload(in, ones.data(), ones.size());
    const Stream stream = gpu.stream();
    const Rank root{1};
    const bool is_root = group.rank() == root;
    const auto expect = [&](bool due, std::size_t bytes) {
      group.synchronize(stream);
      if (due) {
        EXPECT_TRUE(gpu.read(out, bytes) == std::vector<std::byte>(bytes, std::byte{1}));
      }
      gpu.fill(out, 0, bytes / 4 + 1);
      gpu.wait();
    };
    for (const DType type : {DType::bf16, DType::u8}) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{40'003}, kMost}) {
        const std::size_t block = count * size_of(type);
        (void)all_gather(group, in, out, count, type, stream);
        expect(true, 2 * block);
        (void)reduce_scatter(group, in, out, count, type, ReduceOp::max, stream);
        expect(true, block);
        (void)broadcast(group, in, out, count, type, root, stream);
        expect(true, block);
        for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
          (void)onehop::reduce(group, in, out, count, type, ReduceOp::max, root, stream,
                               {.algorithm = algorithm, .timeout = {}});
          expect(is_root, block);
        }
        (void)all_to_all(group, in, out, count, type, stream);
        expect(true, 2 * block);
        (void)gather(group, in, out, count, type, root, stream);
        expect(is_root, 2 * block);
        (void)scatter(group, in, out, count, type, root, stream);
        expect(true, block);
        const Rank other{1 - group.rank().value};
        GroupCall scope;
        (void)send(group, in, count, type, other, stream);
        (void)recv(group, out, count, type, other, stream);
        scope.end();
        expect(true, block);
      }
    }
    group.barrier();
  };
  run_thread_group(2, body, options);
}

}  // namespace
}  // namespace onehop::testing::gpu_one_process_test
