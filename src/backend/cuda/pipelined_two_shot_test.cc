// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "backend/cuda/algorithms/algorithms.h"
#include "backend/cuda/recording_launcher.h"

namespace onehop::cuda {
namespace {

using namespace testing;

TEST(PipelinedTwoShot, SlotsHoldTheChunksAndBothEndsAgree) {
  const ScratchRegion& scratch = *kPipelinedTwoShot.scratch[0];
  for_each_case(kPipelinedTwoShot, [&](const Case& each) {
    if (HasFailure()) return;
    const Launchers launchers = run(each);
    const auto ranks = launchers.size();
    std::vector<PipelineParams> all;
    for (const auto& launcher : launchers) all.push_back(launcher->all_params<PipelineParams>().front());
    for (std::size_t r = 0; r < ranks; ++r) {
      const PipelineParams& p = all[r];
      std::byte* const region = launchers[r]->scratch(scratch, static_cast<int>(r));
      EXPECT_GE(bytes_between(region, p.inbox), sizeof(PipelineHead));
      EXPECT_LE(p.chunk, p.rank_stride);
      EXPECT_LE(ranks * p.rank_stride, p.slot_stride);
      EXPECT_LE(p.slot_stride * kMaxPipelineBlocks * kPipelineDepth, p.phase_stride);
      EXPECT_LE(bytes_between(region, p.inbox) + 2 * p.phase_stride, scratch.bytes(each.shape));
      EXPECT_LE(launchers[r]->all<Launch>().front().shape.grid, kMaxPipelineBlocks);
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        EXPECT_EQ(reinterpret_cast<std::byte*>(p.heads[peer]),
                  launchers[peer]->scratch(scratch, static_cast<int>(peer)));
      }
      for (std::size_t step = 1; step < ranks; ++step) {
        const PipelineParams& peer = all[(r + step) % ranks];
        EXPECT_EQ(p.outbox[step], peer.inbox + r * peer.rank_stride);
        EXPECT_TRUE(p.slot_stride == peer.slot_stride && p.phase_stride == peer.phase_stride);
        EXPECT_TRUE(p.piece == peer.piece && p.chunk == peer.chunk);
      }
    }
    EXPECT_FALSE(HasFailure()) << each.describe();
  });
}

TEST(PipelinedTwoShot, ReducesTheWholeMessageInOneLaunch) {
  for_each_case(kPipelinedTwoShot, [&](const Case& each) {
    const auto ranks = static_cast<std::size_t>(each.shape.ranks);
    for (const auto& launcher : run(each)) {
      const CollectiveCall call = each.call(launcher->rank());
      const std::vector<Launch> launches = launcher->all<Launch>();
      ASSERT_EQ(launches.size(), 1u);
      const auto& p = std::get<PipelineParams>(launches.front().params);
      ASSERT_TRUE(p.in == call.in_at() && p.out == call.out_at() && p.bytes == call.block_bytes());
      ASSERT_EQ(p.aligned, each.shift == 0 || each.shift % 16 == 0);
      ASSERT_TRUE(p.piece % 16 == 0 && p.piece * ranks >= p.bytes && p.piece * ranks < p.bytes + 16 * ranks);
      ASSERT_TRUE(p.chunk >= 16 && p.chunk % 16 == 0) << p.chunk;
      const LaunchShape& shape = launches.front().shape;
      ASSERT_EQ(static_cast<int>(shape.block),
                warp_roles(kernel_ranks(each.shape.ranks, is_sum(each.op))).threads());
      ASSERT_LE(shape.grid, ceil_div(p.piece, p.chunk)) << "a block without a chunk";
    }
  });
}

TEST(PipelinedTwoShot, CutsPiecesIntoChunksByTheNumberOfBlocks) {
  struct Expected {
    std::size_t bytes;
    unsigned blocks;  ///< of the group
    std::optional<unsigned> limit;
    std::size_t chunk;
    unsigned grid;
  };
  constexpr Expected kExpected[] = {
      {16, 132, {}, 512, 1},          {64 * kKiB, 132, {}, 512, 32},   {kMiB, 132, {}, 2048, 128},
      {4 * kMiB, 132, {}, 4096, 132}, {64 * kMiB, 132, {}, 8192, 132}, {64 * kMiB, 200, {}, 8192, 132},
      {64 * kMiB, 200, 32, 8192, 32}, {64 * kMiB, 16, 32, 8192, 16},
  };
  for (const Expected& expected : kExpected) {
    const Case each{.algorithm = &kPipelinedTwoShot,
                    .shape = {.ranks = 4, .staging_bytes = 16 << 20, .blocks = expected.blocks},
                    .bytes = expected.bytes,
                    .limits = {.blocks = expected.limit, .threads = {}}};
    const Launch launch = run(each).front()->all<Launch>().front();
    EXPECT_EQ(std::get<PipelineParams>(launch.params).chunk, expected.chunk) << expected.bytes;
    EXPECT_EQ(launch.shape.grid, expected.grid) << expected.bytes;
    EXPECT_EQ(launch.shape.block, 512u);
  }
}

}  // namespace
}  // namespace onehop::cuda
