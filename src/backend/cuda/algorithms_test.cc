// SPDX-License-Identifier: Apache-2.0
// What all algorithms of GPUs have in common: the scratch memory they share, and the limits of their launches.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "backend/cuda/recording_launcher.h"

namespace onehop::cuda {
namespace {

using namespace testing;

std::set<const ScratchRegion*> all_regions() {
  std::set<const ScratchRegion*> regions;
  for (const DeviceAlgorithm* const algorithm : device_algorithms())
    regions.insert(algorithm->scratch.begin(), algorithm->scratch.end());
  return regions;
}

TEST(ScratchLayout, CutsTheSegmentIntoRegionsThatDoNotOverlap) {
  std::vector<GroupShape> shapes = group_shapes();
  shapes.push_back({.ranks = 1, .staging_bytes = 16 << 20, .blocks = 132});
  for (const GroupShape& shape : shapes) {
    const ScratchLayout layout(shape);
    std::map<std::size_t, std::size_t> ends;  // by offset
    for (const ScratchRegion* const region : all_regions()) {
      const std::size_t offset = layout.offset(*region);
      EXPECT_EQ(offset % kScratchAlignment, 0u);
      if (region->bytes(shape) != 0) {
        EXPECT_TRUE(ends.emplace(offset, offset + region->bytes(shape)).second);
      }
    }
    std::size_t free = sizeof(SegmentHead);
    for (const auto& [begin, end] : ends) {
      EXPECT_GE(begin, free);
      free = end;
    }
    EXPECT_LE(free, layout.bytes());
  }
}

TEST(ScratchLayout, GrowsWithTheStagedBytesInWholePages) {
  for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
    std::size_t before = 0;
    for (std::size_t staging = 64 << 10; staging <= 256 * kMiB; staging *= 2) {
      for (const std::size_t more : {std::size_t{0}, std::size_t{12345}}) {
        const std::size_t bytes =
            ScratchLayout({.ranks = ranks, .staging_bytes = staging + more, .blocks = 132}).bytes();
        EXPECT_EQ(bytes % kScratchAlignment, 0u);
        EXPECT_GE(bytes, before);
        before = bytes;
      }
      const std::size_t carried = ranks == 2 ? staging / 2 : staging;
      EXPECT_GE(before, 4 * carried / (512u * 8) * (512u * 8)) << "two parities and two phases";
    }
  }
}

TEST(ScratchLayout, IsSmallForOneRank) {
  for (const std::size_t staging : {64 * kKiB, 256 * kMiB}) {
    EXPECT_LE(ScratchLayout({.ranks = 1, .staging_bytes = staging, .blocks = 132}).bytes(), 64 * kKiB);
  }
}

TEST(Launcher, PoisonsFloatsUnlessToldNotTo) {
  const GroupShape shape{.ranks = 2, .staging_bytes = 64 * kKiB, .blocks = 1};
  for (const bool poison : {true, false}) {
    const RecordingLauncher launcher(shape, 0, poison);
    for (const DType type : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::e4m3, DType::e5m2})
      EXPECT_EQ(launcher.poisons(type), poison);
    for (const DType type : {DType::i8, DType::u8, DType::i32, DType::u32, DType::i64, DType::u64})
      EXPECT_FALSE(launcher.poisons(type));
  }
}

/// The parameters that all kernels have.
void expect_parameters_of_call(const Case& each, const RecordingLauncher& launcher, const Launch& launch) {
  const auto expect = [&](int rank, int size, const DeviceGuard& guard) {
    EXPECT_EQ(rank, launcher.rank());
    EXPECT_EQ(size, launcher.size());
    EXPECT_EQ(guard.timeout_ns, RecordingLauncher::kTimeout);
    EXPECT_EQ(reinterpret_cast<std::byte*>(guard.failed), segment_of(launcher.rank()));
  };
  const auto phase = DeviceFault::phase_of(each.call(0).collective);
  const auto check = [&]<class Params>(const Params& params) {
    if constexpr (requires { params.barrier; }) {
      expect(params.barrier.rank, params.barrier.size, params.barrier.guard);
      EXPECT_EQ(params.barrier.phase, phase);
    } else {
      expect(params.rank, params.size, params.guard);
      EXPECT_EQ(params.phase, phase);
    }
  };
  std::visit(check, launch.params);
}

/// All blocks that wait must be resident (sync/call.cuh).
void expect_resident(const Case& each, const Launch& launch) {
  ReductionKernel kernel{"any"};
  for (const DeviceAlgorithm* const algorithm : device_algorithms()) {
    for (const ReductionKernel* const of_it : algorithm->kernels) {
      if (of_it->name == launch.kernel) kernel = *of_it;
    }
  }
  // The blocks of an exchange between any number of ranks serve one peer each.
  const int variant =
      launch.kernel == "streaming_exchange_any" ? 2 : kernel.variant(each.shape.ranks, is_sum(each.op));
  const auto most_threads = static_cast<unsigned>(max_threads(variant));
  const LaunchShape& shape = launch.shape;
  EXPECT_GE(shape.grid, 1u);
  EXPECT_TRUE(shape.block >= 32 && shape.block % 32 == 0) << shape.block;
  const auto* const channels = std::get_if<ChannelParams>(&launch.params);
  if (channels == nullptr) {
    EXPECT_EQ(shape.rows,
              each.algorithm == &kStreamingExchange ? static_cast<unsigned>(each.shape.ranks) - 1 : 1u);
    // Few blocks for many peers: every row still has a block.
    EXPECT_LE(shape.grid * shape.rows, std::max(each.shape.blocks, shape.rows));
    EXPECT_LE(shape.block, most_threads);
    return;
  }
  const unsigned threads = launch.kernel == "reduce_from_peers" ? most_threads : kChannelWarps * 32;
  EXPECT_LE(shape.block, threads);
  // Warps without a ring end at once, and so do rows without data.
  std::size_t waiting = 0;
  std::size_t rows = 0;
  const auto count = [&](const ChannelEnd& end) {
    if (end.bytes == 0 || (end.shape.route == Route::ring && end.data == nullptr)) return;
    waiting += end.shape.route == Route::ring ? end.shape.rings : std::size_t{shape.grid} * shape.block / 32;
    ++rows;
  };
  for (const ChannelPair& pair : channels->pairs) {
    count(pair.to);
    // The rows that send also receive messages in LL packets.
    if (pair.from.shape.route == Route::ring || pair.to.bytes == 0) count(pair.from);
  }
  if (channels->own_shape.rings != 0) {
    waiting += std::size_t{channels->parts} * channels->own_shape.rings;
    rows += channels->parts;
  }
  // Few blocks for many peers: every row still has a block.
  EXPECT_LE(waiting,
            std::max<std::size_t>(std::size_t{each.shape.blocks} * threads / 32, rows * shape.block / 32));
}

TEST(DeviceAlgorithms, LaunchWithinTheBlocksOfTheGroupAndTheThreadsOfTheKernel) {
  for (const DeviceAlgorithm* const algorithm : device_algorithms()) {
    if (algorithm == &kAlone) continue;  // has no choice, and so no cases
    std::set<std::string_view> kernels;
    for_each_case_until_failure(*algorithm, [&](const Case& each) {
      for (const auto& launcher : run(each)) {
        for (const Launch& launch : launcher->all<Launch>()) {
          kernels.insert(launch.kernel);
          expect_resident(each, launch);
          expect_parameters_of_call(each, *launcher, launch);
        }
      }
    });
    std::set<std::string_view> listed;
    for (const ReductionKernel* const kernel : algorithm->kernels) listed.insert(kernel->name);
    for (const PlainKernel* const kernel : algorithm->plain_kernels) listed.insert(kernel->name);
    listed.erase("ll_one_shot_list");  // run_fused
    // For what copy engines leave over.
    if (algorithm == &kCopyEngineTwoShot)
      listed.insert({"ll_one_shot", "streaming_one_shot", "streaming_two_shot"});
    // For short blocks that are not whole packets. The cases have bytes and integers.
    if (algorithm == &kStreamingOneShot) listed.insert("ll_reduce_scatter");
    if (algorithm == &kStreamingExchange) listed.insert({"exchange", "exchange_pair"});
    if (algorithm == &kStreamingOneWay) listed.insert("exchange_pair");
    EXPECT_EQ(kernels, listed) << algorithm->name;
  }
}

TEST(DeviceAlgorithms, TellTheLauncherWhetherAKernelLetsTheNextOneStartAtOnce) {
  std::set<bool> seen;
  for (const DeviceAlgorithm* const algorithm : device_algorithms()) {
    for_each_case_until_failure(*algorithm, [&](const Case& each) {
      for (const Launch& launch : run(each).front()->all<Launch>()) {
        const auto check = [&]<class Params>(const Params& params) {
          if constexpr (requires { params.early; }) {
            seen.insert(params.early);
            EXPECT_EQ(launch.shape.lets_next_start, params.early) << launch.kernel;
          } else {
            EXPECT_FALSE(launch.shape.lets_next_start) << launch.kernel;
          }
        };
        std::visit(check, launch.params);
      }
    });
  }
  EXPECT_EQ(seen.size(), 2u);
}

// Or its blocks that copy would keep out what the peers of a small call before it are waiting for.
TEST(DeviceAlgorithms, AKernelOfMoreThanHalfOfTheDeviceDoesNotStartBesideASmallOne) {
  Case each{.algorithm = &kPointToPoint,
            .collective = Collective::all_gather,
            .shape = {.ranks = 2, .staging_bytes = 16 << 20, .blocks = 132}};
  const auto starts = [&](bool behind_early) {
    const std::vector<Launch> launches = run(each).front()->all<Launch>();
    EXPECT_EQ(launches.size(), 1u);
    return may_start_early(launches.front().shape, each.shape.blocks, behind_early);
  };
  for (const std::size_t bytes : {1u << 10, 1u << 20, 64u << 20}) {
    each.bytes = bytes;
    for (const bool in_place : {true, false}) {
      each.in_place = in_place;
      EXPECT_TRUE(starts(false)) << each.describe();
      EXPECT_EQ(starts(true), bytes == 1u << 10 || in_place) << each.describe();
    }
  }
}

TEST(DeviceAlgorithms, LaunchAsOftenOnEveryRank) {
  for (const DeviceAlgorithm* const algorithm : device_algorithms()) {
    for_each_case(*algorithm, [&](const Case& each) {
      const Launchers launchers = run(each);
      const std::vector<Launch> first = launchers.front()->all<Launch>();
      for (const auto& launcher : launchers) {
        const std::vector<Launch> own = launcher->all<Launch>();
        ASSERT_EQ(own.size(), first.size()) << each.describe();
        for (std::size_t i = 0; i < own.size(); ++i)
          ASSERT_EQ(own[i].kernel, first[i].kernel) << each.describe();
      }
    });
  }
}

TEST(DeviceAlgorithms, KeepToTheBlocksAndThreadsOfATable) {
  for (const DeviceAlgorithm* const algorithm : device_algorithms()) {
    if (!algorithm->takes_blocks) continue;
    for_each_case_until_failure(*algorithm, [&](const Case& unlimited) {
      Case each = unlimited;
      // The remainder of an all-reduce by copy engines is below this.
      if (algorithm == &kCopyEngineTwoShot && each.bytes < 64 * kKiB) return;
      each.limits = {.blocks = 3, .threads = 96};
      for (const Launch& launch : run(each).front()->all<Launch>()) {
        if (algorithm == &kCopyEngineTwoShot && launch.kernel == "ll_one_shot") continue;
        if (launch.kernel.starts_with("exchange")) continue;
        ASSERT_LE(launch.shape.grid, 3u) << each.describe();
        if (algorithm->takes_threads) {
          ASSERT_EQ(launch.shape.block, 96u) << each.describe();
        }
      }
      each.limits = {.blocks = 1000, .threads = 1024};
      for (const Launch& launch : run(each).front()->all<Launch>()) expect_resident(each, launch);
    });
  }
}

}  // namespace
}  // namespace onehop::cuda
