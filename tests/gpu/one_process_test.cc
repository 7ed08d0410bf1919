// SPDX-License-Identifier: Apache-2.0
// Ranks of one process: one thread that drives all of them, or a thread for each.
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

}  // namespace
}  // namespace onehop::testing::gpu_one_process_test
