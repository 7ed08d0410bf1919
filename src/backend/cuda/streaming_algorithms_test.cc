// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "backend/cuda/algorithms/push/push_algorithms.h"
#include "backend/cuda/recording_launcher.h"

namespace onehop::cuda {
namespace {

using namespace testing;

/// The parameters and the shape of the one launch of every rank.
struct Stream {
  StreamParams params;
  LaunchShape shape;
  std::size_t chunk;  ///< bytes
};
std::vector<Stream> streams_of(const Case& each) {
  std::vector<Stream> all;
  for (const auto& launcher : run(each)) {
    const std::vector<Launch> launches = launcher->all<Launch>();
    EXPECT_EQ(launches.size(), 1u) << each.describe();
    const auto& params = std::get<StreamParams>(launches.front().params);
    all.push_back({params, launches.front().shape, std::size_t{params.movers} * kStreamWidth});
  }
  return all;
}

/// The cases that stream: other algorithms carry short blocks that are not whole packets.
template <class Body>
void for_each_stream(const DeviceAlgorithm& algorithm, Body&& body) {
  for_each_case_until_failure(algorithm, [&](const Case& each) {
    if (run(each).front()->all<Launch>().front().kernel.starts_with("streaming_")) body(each);
  });
}

constexpr std::array kStreaming{&kStreamingOneShot, &kStreamingTwoShot, &kStreamingExchange,
                                &kStreamingOneWay};

/// For each packet of a slice there is one of each of these pieces in the message.
std::size_t pieces_of(const Case& each) {
  if (each.algorithm != &kStreamingTwoShot) return 1;
  return static_cast<std::size_t>(each.shape.ranks - (each.collective == Collective::reduce ? 1 : 0));
}

TEST(Streaming, SpreadsEveryPacketOverBlocksWithRingsThatDoNotOverlap) {
  for (const DeviceAlgorithm* algorithm : kStreaming) {
    const ScratchRegion& buffers = *algorithm->scratch[0];
    const ScratchRegion& credits = *algorithm->scratch[1];
    for_each_stream(*algorithm, [&](const Case& each) {
      const RecordingLauncher launcher(each.shape, 0);
      const auto [p, shape, chunk] = streams_of(each).front();
      const std::size_t width = 16 * pieces_of(each);
      EXPECT_TRUE(p.packets * width >= p.bytes && p.packets * width < p.bytes + width);
      EXPECT_EQ(p.slice % 32, 0u);
      EXPECT_EQ(p.whole, p.aligned ? p.bytes / 16 : 0);
      EXPECT_TRUE(std::size_t{shape.grid} * p.slice >= p.packets &&
                  (shape.grid - 1) * std::size_t{p.slice} < p.packets);
      const std::size_t slice = std::size_t{p.slice} * 16;
      EXPECT_EQ(p.block_stride, shape.block == p.movers ? slice : p.depth * chunk);
      EXPECT_TRUE(p.depth * chunk >= slice || shape.block > p.movers);
      const std::size_t rings = std::size_t{shape.grid} * p.block_stride;
      EXPECT_LE(rings, p.rank_stride);
      const bool moves = algorithm == &kStreamingExchange || algorithm == &kStreamingOneWay;
      if (moves || type_class(each.type) != TypeClass::floats) {
        EXPECT_LE(rings, p.escapes);
        EXPECT_LE(p.escapes + rings / 16, p.rank_stride) << "a byte for each packet";
      }
      const auto ranks = static_cast<unsigned>(each.shape.ranks);
      EXPECT_EQ(p.rank_stride % kScratchAlignment, 0u);
      EXPECT_LE((ranks - 1) * p.rank_stride, p.phase_stride);
      EXPECT_LE((algorithm == &kStreamingTwoShot ? 2 : 1) * p.phase_stride, p.parity_stride);
      EXPECT_EQ(p.parity_stride, lamport_one_shot_slots(each.shape).parity) << "the same in all algorithms";
      std::byte* const region = launcher.scratch(buffers, 0);
      EXPECT_EQ(reinterpret_cast<std::byte*>(p.counter), region);
      EXPECT_GE(p.inbox, region + sizeof(EpochCounter));
      EXPECT_EQ(bytes_between(region, p.inbox) % 16, 0u);
      EXPECT_LE(bytes_between(region, p.inbox) + 2 * p.parity_stride, buffers.bytes(each.shape));
      EXPECT_LE(shape.grid * sizeof(StreamCredits), credits.bytes(each.shape));
    });
  }
}

TEST(Streaming, ExchangesCreditsWhereRingsAreReused) {
  for (const DeviceAlgorithm* algorithm : kStreaming) {
    const unsigned lag = algorithm == &kStreamingTwoShot ? kTwoShotLag : kOneShotLag;
    std::set<bool> seen;
    for_each_stream(*algorithm, [&](const Case& each) {
      const auto [p, shape, chunk] = streams_of(each).front();
      EXPECT_TRUE(p.movers >= 32 && p.movers % 32 == 0) << p.movers;
      const bool reused = std::size_t{p.slice} * 16 > p.depth * chunk;
      seen.insert(reused);
      const unsigned others = shape.block - p.movers;
      EXPECT_TRUE(others == 32 * kCreditWarps || (others == 0 && !reused)) << others;
      EXPECT_LE(p.depth, algorithm == &kStreamingTwoShot ? kTwoShotDepth : kOneShotDepth);
      if (reused) {
        EXPECT_GE(p.depth, least_depth(lag));
        EXPECT_GE(chunks_per_credit(p.depth, lag), 1u);
        EXPECT_LE(chunks_per_credit(p.depth, lag), p.depth - 3 - lag);
        EXPECT_LT(std::size_t{p.slice} * 16 / chunk, std::size_t{1} << kCreditBits);
      }
    });
    EXPECT_EQ(seen.size(), 2u);
  }
}

TEST(Streaming, WritesWhereThePeerReads) {
  for (const DeviceAlgorithm* algorithm : kStreaming) {
    for_each_stream(*algorithm, [&](const Case& each) {
      const std::vector<Stream> all = streams_of(each);
      for (std::size_t r = 0; r < all.size(); ++r) {
        const StreamParams& own = all[r].params;
        EXPECT_EQ(own.peer_inbox, own.outbox[1]);
        for (std::size_t step = 1; step < all.size(); ++step) {
          const std::size_t other = (r + step) % all.size();
          const StreamParams& peer = all[other].params;
          const std::size_t source = r < other ? r : r - 1;
          EXPECT_EQ(own.outbox[step], peer.inbox + source * peer.rank_stride);
          EXPECT_EQ(own.credits[other], peer.credits[other]);
          EXPECT_EQ(own.parity_stride, peer.parity_stride);
          EXPECT_EQ(own.phase_stride, peer.phase_stride);
          EXPECT_EQ(own.block_stride, peer.block_stride);
          EXPECT_EQ(own.movers, peer.movers);
          EXPECT_EQ(own.depth, peer.depth);
          EXPECT_EQ(own.slice, peer.slice);
          EXPECT_EQ(own.root, peer.root);
          EXPECT_EQ(all[r].shape.grid, all[other].shape.grid);
          EXPECT_EQ(all[r].shape.block, all[other].shape.block);
        }
      }
    });
  }
}

TEST(Streaming, SendsThePeersBlockByOneShotAndReducesOrCopiesTheOwnOne) {
  for (const DeviceAlgorithm* algorithm : {&kStreamingOneShot, &kStreamingExchange, &kStreamingOneWay}) {
    for_each_stream(*algorithm, [&](const Case& each) {
      using enum Collective;
      const bool to_root = each.collective == reduce || each.collective == gather;
      const bool from_root = each.collective == broadcast || each.collective == scatter;
      const std::vector<Stream> all = streams_of(each);
      const int ranks = each.shape.ranks;
      for (int r = 0; r < ranks; ++r) {
        const StreamParams& p = all[static_cast<std::size_t>(r)].params;
        const CollectiveCall call = each.call(r);
        const bool is_root = r == each.root;
        const bool sends = to_root ? !is_root : !from_root || is_root;
        const bool receives = to_root ? is_root : !from_root || !is_root;
        std::vector<const std::byte*> used{p.own, p.own_out};
        for (int step = 1; step < ranks; ++step) {
          const int peer = (r + step) % ranks;
          const std::size_t blocks = ranks == 2 ? 0 : static_cast<std::size_t>(peer);
          const std::byte* const in = p.in + blocks * p.in_stride;
          const std::byte* const out = p.out == nullptr ? nullptr : p.out + blocks * p.out_stride;
          EXPECT_EQ(in, sends ? call.in_at(call.in_offset(peer)) : nullptr);
          EXPECT_EQ(out, receives ? call.out_at(call.out_offset(peer)) : nullptr);
          used.insert(used.end(), {in, out});
        }
        const bool keeps = algorithm != &kStreamingOneWay || is_root;
        if (keeps) {
          EXPECT_EQ(p.own, call.in_at(call.in_offset(r)));
        }
        EXPECT_EQ(p.bytes, call.block_bytes());
        const bool copies = keeps && algorithm != &kStreamingOneShot && !each.in_place;
        EXPECT_EQ(p.own_out, copies ? call.out_at(call.out_offset(r)) : nullptr);
        EXPECT_TRUE(receives || !p.poison);
        for (const std::byte* const at : used) EXPECT_TRUE(!p.aligned || is_aligned(at));
      }
    });
  }
}

TEST(Streaming, LeavesShortBlocksThatAreNotWholePacketsToOthers) {
  const auto kernel = [](const DeviceAlgorithm& algorithm, Collective collective, DType type,
                         std::size_t bytes) {
    const Case each{.algorithm = &algorithm,
                    .collective = collective,
                    .shape = {.ranks = 2, .staging_bytes = 16 << 20, .blocks = 132},
                    .type = type,
                    .bytes = bytes};
    const auto launchers = run(each);
    const std::string_view first = launchers.front()->all<Launch>().front().kernel;
    EXPECT_EQ(launchers.back()->all<Launch>().front().kernel, first);
    return first;
  };
  for (const Collective collective : {Collective::all_gather, Collective::all_to_all}) {
    EXPECT_EQ(kernel(kStreamingExchange, collective, DType::u8, 16), "streaming_exchange");
    EXPECT_EQ(kernel(kStreamingExchange, collective, DType::u8, 17), "exchange_pair");
    EXPECT_EQ(kernel(kStreamingExchange, collective, DType::f32, 128 * kKiB - 4), "exchange_pair");
    EXPECT_EQ(kernel(kStreamingExchange, collective, DType::f32, 128 * kKiB + 4), "streaming_exchange");
    EXPECT_EQ(kernel(kStreamingExchange, collective, DType::bf16, 4 * kMiB - 2), "exchange_pair");
    EXPECT_EQ(kernel(kStreamingExchange, collective, DType::bf16, 4 * kMiB + 2), "streaming_exchange");
  }
  const auto reduce_scatter = [&](DType type, std::size_t bytes) {
    return kernel(kStreamingOneShot, Collective::reduce_scatter, type, bytes);
  };
  EXPECT_EQ(reduce_scatter(DType::bf16, 32), "streaming_reduce_scatter");
  EXPECT_EQ(reduce_scatter(DType::bf16, 8 * kMiB - 2), "lamport_reduce_scatter");
  EXPECT_EQ(reduce_scatter(DType::bf16, 8 * kMiB + 2), "streaming_reduce_scatter");
  EXPECT_EQ(reduce_scatter(DType::i32, 256 * kKiB - 4), "ll_reduce_scatter");
  EXPECT_EQ(reduce_scatter(DType::i32, 256 * kKiB + 4), "streaming_reduce_scatter");
  EXPECT_EQ(kernel(kStreamingOneShot, Collective::reduce, DType::bf16, 6), "streaming_reduce") << "one block";
  EXPECT_EQ(kernel(kStreamingOneWay, Collective::broadcast, DType::u8, 17), "streaming_move") << "one block";
  for (const Collective collective : {Collective::gather, Collective::scatter}) {
    EXPECT_EQ(kernel(kStreamingOneWay, collective, DType::u8, 16), "streaming_move");
    EXPECT_EQ(kernel(kStreamingOneWay, collective, DType::bf16, 4 * kMiB - 2), "exchange_pair");
    EXPECT_EQ(kernel(kStreamingOneWay, collective, DType::bf16, 4 * kMiB + 2), "streaming_move");
  }
}

TEST(StreamingOneShot, CutsWhatOneBlockCouldNotCountIntoLaunches) {
  const Case each{.algorithm = &kStreamingOneShot,
                  .shape = {.ranks = 2, .staging_bytes = 64 * kKiB, .blocks = 1},
                  .bytes = 2 * kStreamLaunchBytes + 5,
                  .limits = {.blocks = 1, .threads = 32}};
  const auto launchers = run(each);
  const std::vector<StreamParams> all = launchers.front()->all_params<StreamParams>();
  ASSERT_EQ(all.size(), 3u);
  std::size_t done = 0;
  for (const StreamParams& p : all) {
    EXPECT_EQ(p.in, each.call(0).in_at(done));
    EXPECT_EQ(p.out, each.call(0).out_at(done));
    EXPECT_LT(p.slice / p.movers, std::size_t{1} << kCreditBits);
    done += p.bytes;
  }
  EXPECT_EQ(done, each.block_bytes());
}

TEST(Streaming, UsesTheShapesThatWereMeasured) {
  struct Expected {
    const DeviceAlgorithm* algorithm;
    int ranks;
    std::size_t bytes;
    unsigned grid;
    unsigned block;
    unsigned movers;
    unsigned depth;
  };
  constexpr Expected kExpected[] = {{&kStreamingOneShot, 2, 512, 1, 64, 64, 1},
                                    {&kStreamingOneShot, 2, 128 * kKiB, 128, 64, 64, 1},
                                    {&kStreamingOneShot, 2, 512 * kKiB, 128, 256, 256, 1},
                                    {&kStreamingOneShot, 2, kMiB, 128, 512, 512, 1},
                                    {&kStreamingOneShot, 2, 4 * kMiB, 131, 512, 512, 4},
                                    {&kStreamingOneShot, 2, 8 * kMiB, 132, 512, 512, 8},
                                    {&kStreamingOneShot, 2, 15 * kMiB, 132, 512, 512, 15},
                                    {&kStreamingOneShot, 2, 16 * kMiB, 132, 512, 448, 16},
                                    {&kStreamingOneShot, 2, 64 * kMiB, 132, 512, 448, 16},
                                    {&kStreamingTwoShot, 4, 4 * kMiB, 128, 512, 512, 1},
                                    {&kStreamingTwoShot, 4, 16 * kMiB, 131, 512, 512, 4},
                                    {&kStreamingTwoShot, 4, 64 * kMiB, 132, 384, 320, 8},
                                    {&kStreamingTwoShot, 8, 64 * kMiB, 132, 192, 128, 8}};
  for (const Expected& expected : kExpected) {
    const Case each{.algorithm = expected.algorithm,
                    .shape = {.ranks = expected.ranks, .staging_bytes = 16 << 20, .blocks = 132},
                    .bytes = expected.bytes};
    const auto [p, shape, chunk] = streams_of(each).front();
    EXPECT_EQ(shape.grid, expected.grid) << each.describe();
    EXPECT_EQ(shape.block, expected.block) << each.describe();
    EXPECT_EQ(p.movers, expected.movers) << each.describe();
    EXPECT_EQ(p.depth, expected.depth) << each.describe();
    EXPECT_EQ(p.early, expected.block <= 256 && expected.ranks == 2) << each.describe();
    EXPECT_EQ(p.soon, expected.algorithm == &kStreamingOneShot && expected.bytes <= 16 * kMiB)
        << each.describe();
  }
}

TEST(Streaming, GivesEachPeerOfAnExchangeAnEqualShareOfTheBlocks) {
  struct Expected {
    int ranks;
    std::size_t block_bytes;
    unsigned grid;
    unsigned threads;
    unsigned movers;
    unsigned depth;
  };
  constexpr Expected kExpected[] = {{2, 512, 1, 64, 64, 1},           {4, 512, 1, 64, 64, 1},
                                    {8, 512, 1, 64, 64, 1},           {4, 256 * kKiB, 43, 384, 384, 1},
                                    {4, 4 * kMiB, 44, 512, 512, 12},  {2, 64 * kMiB, 132, 512, 448, 16},
                                    {4, 64 * kMiB, 44, 512, 448, 16}, {8, 64 * kMiB, 18, 512, 448, 16}};
  for (const Expected& expected : kExpected) {
    for (const Collective collective : {Collective::all_gather, Collective::all_to_all}) {
      const Case each{.algorithm = &kStreamingExchange,
                      .collective = collective,
                      .shape = {.ranks = expected.ranks, .staging_bytes = 16 << 20, .blocks = 132},
                      .bytes = expected.block_bytes};
      const auto [p, shape, chunk] = streams_of(each).front();
      EXPECT_EQ(shape.rows, static_cast<unsigned>(expected.ranks) - 1) << each.describe();
      EXPECT_EQ(shape.grid, expected.grid) << each.describe();
      EXPECT_EQ(shape.block, expected.threads) << each.describe();
      EXPECT_EQ(p.movers, expected.movers) << each.describe();
      EXPECT_EQ(p.depth, expected.depth) << each.describe();
    }
  }
}

}  // namespace
}  // namespace onehop::cuda
