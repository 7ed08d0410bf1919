// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/push/push_algorithms.h"

#include <gtest/gtest.h>

#include <set>
#include <span>

#include "backend/cuda/recording_launcher.h"

namespace onehop::cuda {
namespace {

using namespace testing;

constexpr std::array kPushAlgorithms{&kLLOneShot, &kLamportOneShot, &kLamportTwoShotByPeer, &kLamportTwoShot};

bool uses_ll(const DeviceAlgorithm& algorithm) {
  return &algorithm == &kLLOneShot;
}
bool is_two_shot(const DeviceAlgorithm& algorithm) {
  return algorithm.kind == Algorithm::two_shot;
}
/// Data bytes of a packet.
std::size_t width_of(const DeviceAlgorithm& algorithm) {
  return uses_ll(algorithm) ? 8 : 16;
}
/// The first region has the slots, the second one the discarded results.
const ScratchRegion& slots_of(const DeviceAlgorithm& algorithm) {
  return *algorithm.scratch[0];
}
const ScratchRegion& discard_of(const DeviceAlgorithm& algorithm) {
  return *algorithm.scratch[1];
}

TEST(Push, SlotsHoldThePacketsAndDoNotOverlap) {
  for (const DeviceAlgorithm* const algorithm : kPushAlgorithms) {
    for_each_case_until_failure(*algorithm, [&](const Case& each) {
      const auto ranks = static_cast<std::size_t>(each.shape.ranks);
      for (const auto& launcher : run(each)) {
        std::byte* const region = launcher->scratch(slots_of(*algorithm), launcher->rank());
        for (const PushParams& p : launcher->all_params<PushParams>()) {
          EXPECT_EQ(reinterpret_cast<std::byte*>(p.counter), region);
          EXPECT_GE(p.inbox, region + sizeof(EpochCounter));
          EXPECT_EQ(bytes_between(region, p.inbox) % 16, 0u);
          // LL packets take twice their data.
          EXPECT_LE(p.packets * std::size_t{16}, p.rank_stride);
          const std::size_t phases = is_two_shot(*algorithm) ? 2 : 1;
          if (phases == 2) {
            EXPECT_LE(ranks * p.rank_stride, p.phase_stride);
          }
          EXPECT_LE((phases - 1) * p.phase_stride + ranks * p.rank_stride, p.parity_stride);
          EXPECT_LE(bytes_between(region, p.inbox) + 2 * p.parity_stride,
                    slots_of(*algorithm).bytes(each.shape));
          // A scrub writes all flags of a slot.
          if (uses_ll(*algorithm)) {
            EXPECT_GE(p.rank_stride, 2 * kLLSlotBytes);
          }
        }
      }
    });
  }
}

TEST(Push, WritesWhereThePeerReads) {
  for (const DeviceAlgorithm* const algorithm : kPushAlgorithms) {
    for_each_case_until_failure(*algorithm, [&](const Case& each) {
      std::vector<std::vector<PushParams>> all;
      for (const auto& launcher : run(each)) all.push_back(launcher->all_params<PushParams>());
      for (std::size_t i = 0; i < all[0].size(); ++i) {
        for (std::size_t r = 0; r < all.size(); ++r) {
          const PushParams& own = all[r][i];
          for (std::size_t step = 1; step < all.size(); ++step) {
            const PushParams& peer = all[(r + step) % all.size()][i];
            EXPECT_EQ(own.outbox[step], peer.inbox + r * peer.rank_stride);
            EXPECT_EQ(own.parity_stride, peer.parity_stride);
            EXPECT_EQ(own.phase_stride, peer.phase_stride);
            EXPECT_EQ(own.packets, peer.packets);
            EXPECT_EQ(own.piece, peer.piece);
            EXPECT_EQ(own.bytes, peer.bytes);
          }
        }
      }
    });
  }
}

TEST(Push, ReducesEveryByteOnce) {
  for (const DeviceAlgorithm* const algorithm : kPushAlgorithms) {
    const std::size_t width = width_of(*algorithm);
    for_each_case_until_failure(*algorithm, [&](const Case& each) {
      const auto ranks = static_cast<std::size_t>(each.shape.ranks);
      for (const auto& launcher : run(each)) {
        const CollectiveCall call = each.call(launcher->rank());
        std::byte* const discard = launcher->scratch(discard_of(*algorithm), launcher->rank());
        std::size_t done = 0;
        for (const PushParams& p : launcher->all_params<PushParams>()) {
          const bool scatters = call.collective == Collective::reduce_scatter;
          const std::size_t reduced = scatters ? p.block : p.bytes;
          ASSERT_GT(reduced, 0u);
          EXPECT_EQ(p.in, call.in_at() + done);
          if (call.gets_out()) {
            EXPECT_EQ(p.out, call.out_at() + done);
          } else {
            EXPECT_EQ(p.out, discard);
            EXPECT_LE(reduced, discard_of(*algorithm).bytes(each.shape));
          }
          EXPECT_EQ(p.by_peer, algorithm == &kLamportTwoShotByPeer);
          if (scatters) {
            EXPECT_EQ(p.piece, call.block_bytes());
            EXPECT_EQ(p.bytes, (ranks - 1) * p.piece + p.block) << "to the end of the last rank's part";
          } else if (is_two_shot(*algorithm)) {
            EXPECT_EQ(p.piece % 16, 0u);
            EXPECT_GE(p.piece * ranks, p.bytes);
            EXPECT_LT(p.piece * ranks, p.bytes + 16 * ranks);
          }
          const std::size_t moved = is_two_shot(*algorithm) ? p.piece : reduced;
          EXPECT_TRUE(p.packets * width >= moved && p.packets * width < moved + width) << p.packets;
          // Whole packets are loaded and stored only from aligned addresses, in every launch and block.
          if (p.aligned) {
            EXPECT_TRUE(is_aligned(p.in) && is_aligned(p.out));
            if (scatters) {
              EXPECT_EQ(p.piece % 16, 0u);
            }
          }
          done += reduced;
        }
        EXPECT_EQ(done, call.block_bytes());
      }
    });
  }
}

TEST(Push, LoadsWholePacketsWhereInputAndOutputAreAligned) {
  const auto aligned = [](const Case& each, int rank) {
    return run(each)[static_cast<std::size_t>(rank)]->all_params<PushParams>().front().aligned;
  };
  Case each{.algorithm = &kLLOneShot,
            .shape = {.ranks = 3, .staging_bytes = kMiB, .blocks = 132},
            .type = DType::u8,
            .bytes = 160};
  EXPECT_TRUE(aligned(each, 0));
  each.shift = 8;
  EXPECT_FALSE(aligned(each, 0));
  each.shift = 0;
  each.collective = Collective::reduce_scatter;
  EXPECT_TRUE(aligned(each, 0));
  each.bytes = 168;
  EXPECT_FALSE(aligned(each, 0)) << "the second rank's part begins between two packets";
}

TEST(Push, LetsTheNextKernelStartOnlyBesideSmallBlocks) {
  for (const DeviceAlgorithm* const algorithm : kPushAlgorithms) {
    for_each_case(*algorithm, [&](const Case& each) {
      const auto most = static_cast<unsigned>(max_threads(kernel_ranks(each.shape.ranks, is_sum(each.op))));
      for (const Launch& launch : run(each).front()->all<Launch>())
        ASSERT_EQ(std::get<PushParams>(launch.params).early, launch.shape.block <= most / 2)
            << each.describe();
    });
  }
}

struct ExpectedShape {
  std::size_t bytes;
  unsigned grid;
  unsigned block;
  bool early;
};

void expect_shapes(Case each, std::span<const ExpectedShape> expected) {
  for (const ExpectedShape& shape : expected) {
    each.bytes = shape.bytes;
    const Launch launch = run(each).front()->all<Launch>().front();
    EXPECT_EQ(launch.shape.grid, shape.grid) << each.describe();
    EXPECT_EQ(launch.shape.block, shape.block) << each.describe();
    EXPECT_EQ(std::get<PushParams>(launch.params).early, shape.early) << each.describe();
    EXPECT_TRUE(launch.shape.waits_for_previous);
  }
}

TEST(Push, SpreadsPacketsOverSmallBlocksFirst) {
  const GroupShape two{.ranks = 2, .staging_bytes = 16 << 20, .blocks = 132};
  const GroupShape four{.ranks = 4, .staging_bytes = 16 << 20, .blocks = 132};
  constexpr ExpectedShape kLL[] = {{8, 1, 32, true},
                                   {264, 1, 64, true},
                                   {1024, 1, 128, true},
                                   {1032, 3, 64, true},
                                   {32 * kKiB, 64, 64, true},
                                   {128 * kKiB, 128, 128, true},
                                   {256 * kKiB, 128, 256, true},
                                   {2 * kMiB, 128, 256, true}};
  expect_shapes({.algorithm = &kLLOneShot, .shape = two}, kLL);
  constexpr ExpectedShape kLamport[] = {{64 * kKiB, 64, 64, true},
                                        {528 * kKiB, 132, 256, true},
                                        {528 * kKiB + 16, 67, 512, false},
                                        {2 * kMiB, 132, 512, false}};
  expect_shapes({.algorithm = &kLamportOneShot, .shape = two}, kLamport);
  // Of two-shot, a launch has the packets of a piece.
  constexpr ExpectedShape kTwoShot[] = {{4 * kKiB, 1, 64, true},
                                        {kMiB, 128, 128, true},
                                        {3 * kMiB, 132, 256, true},
                                        {4 * kMiB, 132, 256, true},
                                        {8 * kMiB, 132, 512, false}};
  expect_shapes({.algorithm = &kLamportTwoShot, .shape = four}, kTwoShot);
  constexpr ExpectedShape kScatter[] = {{kKiB, 1, 64, true}, {8 * kMiB, 132, 512, false}};
  expect_shapes({.algorithm = &kLamportOneShot, .collective = Collective::reduce_scatter, .shape = four},
                kScatter);
  constexpr ExpectedShape kScatterTwo[] = {
      {kKiB, 1, 64, true}, {528 * kKiB, 132, 256, true}, {kMiB, 128, 512, false}};
  expect_shapes({.algorithm = &kLamportOneShot, .collective = Collective::reduce_scatter, .shape = two},
                kScatterTwo);
  // Kernels for other reductions have smaller blocks.
  constexpr ExpectedShape kOfMax[] = {{4 * kKiB, 1, 64, true}, {3 * kMiB, 132, 256, false}};
  expect_shapes({.algorithm = &kLamportTwoShot, .shape = four, .op = ReduceOp::max}, kOfMax);
}

TEST(Push, CutsLaunchesOfATableToWhatThereIs) {
  Case each{.algorithm = &kLamportTwoShot,
            .shape = {.ranks = 4, .staging_bytes = 16 << 20, .blocks = 66},
            .bytes = 64 * kMiB,
            .limits = {.blocks = {}, .threads = 512}};
  const auto shape = [&] { return run(each).front()->all<Launch>().front().shape; };
  EXPECT_EQ(shape().grid, 66u);
  EXPECT_EQ(shape().block, 512u);
  each.limits = {.blocks = 32, .threads = 128};
  EXPECT_EQ(shape().grid, 32u);
  EXPECT_EQ(shape().block, 128u);
  each.limits = {.blocks = {}, .threads = 512};
  each.op = ReduceOp::max;
  EXPECT_EQ(shape().block, 256u) << "kernels for other reductions have no more";
  each.bytes = 4 * kKiB;
  EXPECT_EQ(shape().grid, 1u) << "no more than there is work for";
}

TEST(Push, LaunchesWhatASlotHolds) {
  const auto first_launch = [](const DeviceAlgorithm& algorithm, int ranks, Collective collective) {
    const Case each{.algorithm = &algorithm,
                    .collective = collective,
                    .shape = {.ranks = ranks, .staging_bytes = 16 << 20, .blocks = 132},
                    .type = DType::f32,
                    .bytes = 64 * kMiB};
    return run(each).front()->all_params<PushParams>().front().bytes;
  };
  for (const int ranks : {2, 4, 8}) {
    const auto n = static_cast<std::size_t>(ranks);
    const std::size_t lamport = ranks == 2 ? 8 * kMiB : 16 * kMiB;
    EXPECT_EQ(first_launch(kLLOneShot, ranks, Collective::all_reduce), kLLSlotBytes);
    EXPECT_EQ(first_launch(kLamportOneShot, ranks, Collective::all_reduce), 2 * lamport / n);
    EXPECT_EQ(first_launch(kLamportTwoShot, ranks, Collective::all_reduce), lamport);
    EXPECT_EQ(first_launch(kLamportTwoShot, ranks, Collective::reduce), 4 * kMiB) << "what a rank discards";
  }
}

std::vector<CollectiveCall> calls_of(const GroupShape& shape, int rank, std::span<const std::size_t> bytes,
                                     ReduceOp op = ReduceOp::sum) {
  std::vector<CollectiveCall> calls;
  std::size_t offset = 0;
  for (const std::size_t each : bytes) {
    const Case one{.algorithm = &kLLOneShot, .shape = shape, .type = DType::u8, .op = op, .bytes = each};
    calls.push_back(one.call(rank));
    calls.back().in = calls.back().in_at(offset);
    calls.back().out = calls.back().out_at(offset);
    offset += each;
  }
  return calls;
}

TEST(RunFused, NumbersThePacketsOfAllMessages) {
  for (const GroupShape& shape : group_shapes()) {
    const std::size_t bytes[] = {8, 1, 0, 100, 4 * kKiB, 0};
    const std::vector<CollectiveCall> calls = calls_of(shape, 1, bytes);
    RecordingLauncher launcher(shape, 1);
    run_fused(launcher, calls);
    const std::vector<PushListParams> all = launcher.all_params<PushListParams>();
    ASSERT_EQ(all.size(), 1u);
    const PushListParams& p = all.front();
    EXPECT_EQ(p.packets, 1u + 1 + 13 + 512);
    std::size_t message = 0;
    std::uint32_t packets = 0;
    for (const CollectiveCall& call : calls) {
      if (call.count == 0) continue;
      EXPECT_EQ(p.first[message], packets);
      EXPECT_EQ(p.messages[message].in, call.in_at());
      EXPECT_EQ(p.messages[message].out, call.out_at());
      EXPECT_EQ(p.messages[message].bytes, call.block_bytes());
      packets += static_cast<std::uint32_t>(fused_packets(call.block_bytes()));
      ++message;
    }
    for (; message < kMaxFused; ++message) EXPECT_EQ(p.first[message], UINT32_MAX);
  }
}

TEST(RunFused, FitsASlotWithTheMostPackets) {
  for (const GroupShape& shape : group_shapes()) {
    const std::vector<std::size_t> bytes(kMaxFused, kLLSlotBytes / kMaxFused);
    RecordingLauncher launcher(shape, 0);
    run_fused(launcher, calls_of(shape, 0, bytes));
    const PushListParams p = launcher.all_params<PushListParams>().front();
    EXPECT_EQ(p.packets, kMaxFusedPackets);
    EXPECT_LE(p.packets * std::size_t{16}, p.rank_stride);
    EXPECT_EQ(launcher.all<Launch>().front().kernel, "ll_one_shot_list");
  }
}

TEST(RunFused, IsLaunchedAsAMessageOfAllItsPackets) {
  for (const GroupShape& shape : group_shapes()) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
      for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, std::size_t{1000}, 4 * kKiB}) {
        RecordingLauncher launcher(shape, 0);
        run_fused(launcher, calls_of(shape, 0, std::vector<std::size_t>(20, bytes), op));
        const Launch together = launcher.all<Launch>().front();
        const Launch one = run({.algorithm = &kLLOneShot,
                                .shape = shape,
                                .type = DType::u8,
                                .op = op,
                                .bytes = 20 * ((bytes + 7) / 8 * 8)})
                               .front()
                               ->all<Launch>()
                               .front();
        EXPECT_EQ(together.shape.grid, one.shape.grid);
        EXPECT_EQ(together.shape.block, one.shape.block);
        EXPECT_EQ(std::get<PushListParams>(together.params).early, std::get<PushParams>(one.params).early);
      }
    }
  }
}

TEST(OneRank, MultipliesEveryByteOfOneRanksMessageOnce) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{8}, 4 * kMiB + 3, std::size_t{5} << 30}) {
    const Case each{.algorithm = &kAlone,
                    .shape = {.ranks = 1, .staging_bytes = kMiB, .blocks = 132},
                    .type = DType::u8,
                    .op = ReduceOp::premul_sum,
                    .bytes = bytes};
    const CollectiveCall call = each.call(0);
    RecordingLauncher launcher(each.shape, 0);
    kAlone.run(launcher, call, {}, nullptr);
    std::size_t done = 0;
    for (const Launch& launch : launcher.all<Launch>()) {
      const auto& p = std::get<PushParams>(launch.params);
      EXPECT_EQ(p.in, call.in_at() + done);
      EXPECT_EQ(p.out, call.out_at() + done);
      EXPECT_EQ(p.packets, (p.bytes + 7) / 8);
      EXPECT_EQ(p.size, 1);
      EXPECT_TRUE(launch.shape.grid >= 1 && launch.shape.grid <= 132) << launch.shape.grid;
      EXPECT_LE(launch.shape.block, 256u);
      done += p.bytes;
    }
    EXPECT_EQ(done, bytes);
  }
}

}  // namespace
}  // namespace onehop::cuda
