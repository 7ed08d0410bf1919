// SPDX-License-Identifier: Apache-2.0
// The algorithms that use point-to-point channels: both ends of every channel, and what travels through it.
#include <gtest/gtest.h>

#include <bit>
#include <map>

#include "backend/cuda/algorithms/point_to_point/channel_launch.h"
#include "backend/cuda/recording_launcher.h"

namespace onehop::cuda {
namespace {

using namespace testing;

constexpr std::array kChannelAlgorithms{&kPointToPoint, &kScatterAllGather, &kReduceFromPeers};

/// The entry of rank `other` in the pairs of a rank.
std::size_t entry(int rank, int other, int ranks) {
  return static_cast<std::size_t>((other - rank - 1 + ranks) % ranks);
}

/// What every rank launches: nothing or one kernel.
std::vector<std::optional<Launch>> launches_of(const Case& each) {
  std::vector<std::optional<Launch>> all;
  for (const auto& launcher : run(each)) {
    const std::vector<Launch> launches = launcher->all<Launch>();
    EXPECT_EQ(launcher->steps().size(), launches.size());
    EXPECT_LE(launches.size(), 1u);
    all.push_back(launches.empty() ? std::nullopt : std::optional(launches.front()));
  }
  return all;
}
const ChannelParams& params_of(const std::optional<Launch>& launch) {
  return std::get<ChannelParams>(launch->params);
}

/// Pieces of memory that must not overlap.
class Extents {
 public:
  void add(const void* begin, std::size_t bytes) {
    const auto first = reinterpret_cast<std::uintptr_t>(begin);
    EXPECT_TRUE(ends_.emplace(first, first + bytes).second) << "used twice";
  }
  void expect_apart_within(const std::byte* begin, std::size_t bytes) const {
    auto free = reinterpret_cast<std::uintptr_t>(begin);
    const std::uintptr_t end = free + bytes;
    for (const auto& [first, last] : ends_) {
      EXPECT_GE(first, free);
      free = last;
    }
    EXPECT_LE(free, end);
  }

 private:
  std::map<std::uintptr_t, std::uintptr_t> ends_;
};

bool same(const MessageShape& a, const MessageShape& b) {
  return a.route == b.route && a.chunk == b.chunk && a.rings == b.rings;
}

TEST(Channel, HasTheSameMemoryAndMessageOnBothEnds) {
  for (const DeviceAlgorithm* const algorithm : kChannelAlgorithms) {
    for_each_case_until_failure(*algorithm, [&](const Case& each) {
      const std::vector<std::optional<Launch>> all = launches_of(each);
      const int n = each.shape.ranks;
      for (int from = 0; from < n; ++from) {
        for (int to = 0; to < n; ++to) {
          if (from == to) continue;
          const auto& sender = params_of(all[static_cast<std::size_t>(from)]);
          const auto& receiver = params_of(all[static_cast<std::size_t>(to)]);
          const ChannelEnd& a = sender.pairs[entry(from, to, n)].to;
          const ChannelEnd& b = receiver.pairs[entry(to, from, n)].from;
          EXPECT_TRUE(a.packets == b.packets && a.packed == b.packed && a.slots == b.slots);
          EXPECT_TRUE(a.chunks_ready == b.chunks_ready && a.taken == b.taken &&
                      a.chunks_taken == b.chunks_taken);
          EXPECT_EQ(a.bytes, b.bytes);
          EXPECT_TRUE(same(a.shape, b.shape));
          EXPECT_EQ(sender.slot, receiver.slot);
          EXPECT_EQ(sender.ll_parity, receiver.ll_parity);
          EXPECT_EQ(sender.packed_parity, receiver.packed_parity);
        }
      }
    });
  }
}

TEST(Channel, MemoryOfAllPairsLiesApartWithinTheRegion) {
  for (const GroupShape& shape : group_shapes()) {
    const Case each{.algorithm = &kPointToPoint,
                    .collective = Collective::all_gather,
                    .shape = shape,
                    .type = DType::u8,
                    .bytes = 1};
    const Launchers launchers = run(each);
    const auto n = static_cast<std::size_t>(shape.ranks);
    const std::size_t rings = rings_per_peer(n);
    const std::size_t packed = max_packed_bytes(n) / kPackedDataBytes * kPackedSlotBytes;
    std::vector<Extents> segments(n);
    for (std::size_t r = 0; r < n; ++r) {
      const ChannelParams p = launchers[r]->all_params<ChannelParams>().front();
      for (std::size_t i = 0; i + 1 < n; ++i) {
        const ChannelPair& pair = p.pairs[i];
        Extents& own = segments[r];
        Extents& peer = segments[(r + 1 + i) % n];
        for (const std::size_t parity : {0, 1}) {
          own.add(pair.from.packets + parity * p.ll_parity, 2 * kMaxLLBytes);
          own.add(pair.from.packed + parity * p.packed_parity, packed);
        }
        own.add(pair.from.slots, rings * kRingDepth * p.slot);
        own.add(pair.from.chunks_ready, rings * sizeof(ChunkFlag));
        peer.add(pair.from.taken, sizeof(std::uint64_t));
        peer.add(pair.from.chunks_taken, rings * sizeof(ChunkFlag));
        for (const ChannelEnd* const end : {&pair.to, &pair.from}) {
          own.add(end->messages, sizeof(EpochCounter));
          own.add(end->chunks, rings * sizeof(std::uint64_t));
        }
      }
    }
    for (std::size_t r = 0; r < n; ++r) {
      segments[r].expect_apart_within(launchers[r]->scratch(kChannelScratch, static_cast<int>(r)),
                                      kChannelScratch.bytes(shape));
    }
  }
}

void expect_fits(const ChannelParams& p, const ChannelEnd& end, std::size_t ranks) {
  switch (end.shape.route) {
    case Route::ll:
      EXPECT_LE(end.bytes, kMaxLLBytes);
      break;
    case Route::ll_packed:
      EXPECT_LE(end.bytes, max_packed_bytes(ranks));
      break;
    case Route::ring:
      EXPECT_LE(end.shape.chunk, p.slot);
      EXPECT_EQ(end.shape.chunk % 16, 0u);
      EXPECT_LE(end.shape.rings, rings_per_peer(ranks));
      EXPECT_EQ(end.shape.rings == 0, end.bytes == 0);
      if (end.bytes != 0) {
        EXPECT_LT((end.shape.rings - 1) * std::size_t{end.shape.chunk}, end.bytes)
            << "a ring without a chunk";
      }
      break;
  }
}

/// Whether the kernel has a row for every end, and a warp for every ring.
void expect_covered(const Launch& launch, std::size_t ranks) {
  const auto& p = std::get<ChannelParams>(launch.params);
  const LaunchShape& shape = launch.shape;
  const std::size_t warps = std::size_t{shape.grid} * shape.block / 32;
  EXPECT_TRUE(p.senders == 0 || p.senders == ranks - 1) << p.senders;
  EXPECT_TRUE(p.receivers == 0 || p.receivers == ranks - 1) << p.receivers;
  EXPECT_GE(shape.rows, std::max(2u, p.senders + p.receivers + (p.bytes != 0 ? p.parts : 0)));
  EXPECT_TRUE(p.parts >= 1 && std::has_single_bit(p.parts)) << p.parts;
  EXPECT_EQ(shape.block / 32 % p.parts, 0u) << "warps that share a ring are in one block";
  EXPECT_GE(warps, p.own_shape.rings);
  for (std::size_t i = 0; i + 1 < ranks; ++i) {
    const auto check = [&](const ChannelEnd& end, std::uint32_t rows) {
      expect_fits(p, end, ranks);
      if (end.bytes == 0) return;
      if (end.shape.route != Route::ring) {
        EXPECT_TRUE(launch.kernel.starts_with("exchange")) << launch.kernel;
        EXPECT_EQ(p.senders, ranks - 1) << "these rows move the packets of both directions";
      } else if (end.data != nullptr) {
        EXPECT_EQ(rows, ranks - 1);
        EXPECT_GE(warps, end.shape.rings);
      }
    };
    check(p.pairs[i].to, p.senders);
    check(p.pairs[i].from, p.receivers);
  }
}

TEST(Channel, MessagesFitTheirSlotsAndEveryRingHasAWarp) {
  for (const DeviceAlgorithm* const algorithm : kChannelAlgorithms) {
    for_each_case_until_failure(*algorithm, [&](const Case& each) {
      for (const auto& launch : launches_of(each)) {
        ASSERT_TRUE(launch.has_value());
        expect_covered(*launch, static_cast<std::size_t>(each.shape.ranks));
      }
    });
  }
}

TEST(Channel, LetsTheNextKernelStartOnlyBesideSmallBlocksThatNoRingKeeps) {
  for (const DeviceAlgorithm* const algorithm : kChannelAlgorithms) {
    for_each_case(*algorithm, [&](const Case& each) {
      for (const auto& launch : launches_of(each)) {
        const ChannelParams& p = params_of(launch);
        bool has_rings = p.own_shape.rings != 0;
        for (const ChannelPair& pair : p.pairs)
          has_rings = has_rings || pair.to.shape.rings != 0 || pair.from.shape.rings != 0;
        const bool expected =
            launch->kernel.starts_with("exchange") && !has_rings && launch->shape.block <= 256;
        ASSERT_EQ(p.early, expected) << each.describe();
      }
    });
  }
}

TEST(Channel, CutsAMessageByItsLengthAlone) {
  constexpr std::size_t kSizes[] = {1,        2,         64,        65,
                                    4096,     8 * kKiB,  64 * kKiB, 256 * kKiB,
                                    kMiB + 3, 10 * kMiB, 64 * kMiB, std::size_t{1} << 40};
  for (const std::size_t slot : {std::size_t{512}, std::size_t{8} << 10}) {
    for (const unsigned most : {1u, 5u, 336u, 1024u}) {
      for (const std::size_t bytes : kSizes) {
        const MessageShape shape = cut_into_chunks(bytes, slot, most);
        ASSERT_EQ(shape.route, Route::ring);
        ASSERT_TRUE(shape.chunk % 16 == 0 && shape.chunk <= slot);
        ASSERT_TRUE(shape.rings >= 1 && shape.rings <= most);
        ASSERT_LT(std::size_t{shape.rings - 1} * shape.chunk, bytes) << "a ring without a chunk";
        const std::size_t round = std::size_t{shape.rings} * shape.chunk;
        ASSERT_LE(ceil_div(bytes, round), ceil_div(bytes, most * slot)) << "more rounds";
      }
      ASSERT_EQ(cut_into_chunks(0, slot, most).rings, 0u);
    }
  }
}

/// The blocks of the call that a rank sends to another.
void expect_exchanged(const Case& each, int rank, const ChannelParams& p) {
  const CollectiveCall call = each.call(rank);
  for (int other = 0; other < each.shape.ranks; ++other) {
    const std::span<const std::byte> sent = call.block_to(other);
    const std::span<std::byte> received = call.block_from(other);
    if (other == rank) {
      EXPECT_EQ(p.bytes, sent.data() == received.data() ? 0 : sent.size());
      if (p.bytes != 0) {
        EXPECT_TRUE(p.in == sent.data() && p.out == received.data());
      }
      continue;
    }
    const ChannelPair& pair = p.pairs[entry(rank, other, each.shape.ranks)];
    EXPECT_TRUE(pair.to.data == sent.data() && pair.to.bytes == sent.size());
    EXPECT_TRUE(pair.from.data == received.data() && pair.from.bytes == received.size());
  }
}

TEST(PointToPoint, MovesEveryBlockToItsPlace) {
  for_each_case(kPointToPoint, [&](const Case& given) {
    for (const bool in_place : {false, true}) {
      if (HasFailure()) return;
      Case each = given;
      each.in_place = in_place;
      const std::vector<std::optional<Launch>> all = launches_of(each);
      for (int r = 0; r < each.shape.ranks; ++r) {
        ASSERT_TRUE(all[static_cast<std::size_t>(r)].has_value());
        EXPECT_EQ(all[static_cast<std::size_t>(r)]->kernel,
                  each.shape.ranks == 2 ? "exchange_pair" : "exchange");
        expect_exchanged(each, r, params_of(all[static_cast<std::size_t>(r)]));
      }
      EXPECT_FALSE(HasFailure()) << each.describe();
    }
  });
}

TEST(PointToPoint, TakesTheRouteThatTheLengthDecides) {
  const auto route = [](int ranks, std::size_t bytes) {
    const Case each{.algorithm = &kPointToPoint,
                    .collective = Collective::all_to_all,
                    .shape = {.ranks = ranks, .staging_bytes = 16 << 20, .blocks = 132},
                    .type = DType::u8,
                    .bytes = bytes};
    return params_of(launches_of(each).front()).pairs[0].to.shape.route;
  };
  EXPECT_EQ(max_packed_bytes(2), 4'195'072u);
  EXPECT_EQ(max_packed_bytes(4), 1'399'552u);
  EXPECT_EQ(max_packed_bytes(8), 600'320u);
  for (const int ranks : {2, 4, 8}) {
    EXPECT_EQ(route(ranks, 1), Route::ll);
    EXPECT_EQ(route(ranks, 64 * kKiB), Route::ll);
    EXPECT_EQ(route(ranks, 64 * kKiB + 1), Route::ll_packed);
    EXPECT_EQ(route(ranks, max_packed_bytes(static_cast<std::size_t>(ranks))), Route::ll_packed);
    EXPECT_EQ(route(ranks, max_packed_bytes(static_cast<std::size_t>(ranks)) + 1), Route::ring);
  }
}

TEST(PointToPoint, LaunchesRowsForPeersAndForTheOwnBlock) {
  struct Expected {
    int ranks;
    std::size_t bytes;
    unsigned grid;
    unsigned rows;
    unsigned block;
    bool early;
  };
  constexpr Expected kExpected[] = {
      {2, 1, 1, 2, 32, true},           {2, kKiB, 1, 2, 128, true},        {2, 1032, 3, 2, 64, true},
      {2, 64 * kKiB, 128, 2, 64, true}, {4, kKiB, 1, 4, 128, true},        {4, 64 * kKiB, 43, 4, 192, true},
      {4, kMiB, 44, 4, 512, false},     {2, 64 * kMiB, 64, 3, 512, false}, {4, 64 * kMiB, 84, 7, 128, false},
  };
  for (const Expected& expected : kExpected) {
    const Case each{.algorithm = &kPointToPoint,
                    .collective = Collective::all_to_all,
                    .shape = {.ranks = expected.ranks, .staging_bytes = 16 << 20, .blocks = 132},
                    .type = DType::u8,
                    .bytes = expected.bytes};
    const Launch launch = *launches_of(each).front();
    EXPECT_EQ(launch.shape.grid, expected.grid) << each.describe();
    EXPECT_EQ(launch.shape.rows, expected.rows) << each.describe();
    EXPECT_EQ(launch.shape.block, expected.block) << each.describe();
    EXPECT_EQ(std::get<ChannelParams>(launch.params).early, expected.early) << each.describe();
  }
}

TEST(Exchange, LaunchesNothingWithoutDataAndCopiesOnOneRank) {
  RecordingLauncher several({.ranks = 3, .staging_bytes = kMiB, .blocks = 132}, 1);
  exchange(several, {}, DeviceFault::phase_of(Collective::send));
  EXPECT_TRUE(several.steps().empty());

  const GroupShape one{.ranks = 1, .staging_bytes = kMiB, .blocks = 132};
  Transfers transfers{};
  transfers[0] = {.in = input_of(0), .sent = 77, .out = output_of(0), .received = 77};
  RecordingLauncher copies(one, 0);
  exchange(copies, transfers, DeviceFault::phase_of(Collective::send));
  const std::vector<Copy> all = copies.all<Copy>();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(all[0].to == output_of(0) && all[0].from == input_of(0) && all[0].bytes == 77);
  EXPECT_EQ(all[0].lane, Lane::caller);

  transfers[0].out = input_of(0);
  RecordingLauncher in_place(one, 0);
  exchange(in_place, transfers, DeviceFault::phase_of(Collective::send));
  EXPECT_TRUE(in_place.steps().empty());
}

TEST(Exchange, MovesMessagesOfAnyLengthsTogether) {
  // Rank 0 of 4 sends a long message to rank 1, a short one to rank 2, and receives a medium one from rank 3.
  const GroupShape shape{.ranks = 4, .staging_bytes = 16 << 20, .blocks = 132};
  Transfers transfers{};
  transfers[1] = {.in = input_of(0), .sent = 64 * kMiB, .out = nullptr, .received = 0};
  transfers[2] = {.in = input_of(0), .sent = 100, .out = nullptr, .received = 0};
  transfers[3] = {.in = nullptr, .sent = 0, .out = output_of(0), .received = 200'000};
  RecordingLauncher launcher(shape, 0);
  exchange(launcher, transfers, DeviceFault::phase_of(Collective::send));
  const Launch launch = launcher.all<Launch>().front();
  expect_covered(launch, 4);
  const auto& p = std::get<ChannelParams>(launch.params);
  EXPECT_EQ(p.pairs[0].to.shape.route, Route::ring);
  EXPECT_EQ(p.pairs[1].to.shape.route, Route::ll);
  EXPECT_EQ(p.pairs[2].from.shape.route, Route::ll_packed);
  EXPECT_EQ(p.receivers, 0u) << "no ring delivers to this rank";
  EXPECT_EQ(p.phase, DeviceFault::phase_of(Collective::send));
}

/// Data that a rank reduces or forwards, as its peers send it.
void expect_taken(const Case& each, int rank, const ChannelParams& p, int other) {
  const ChannelEnd& end = p.pairs[entry(rank, other, each.shape.ranks)].from;
  EXPECT_EQ(end.data, nullptr);
  EXPECT_EQ(end.bytes, p.bytes);
  EXPECT_TRUE(same(end.shape, p.own_shape));
}

TEST(ReduceFromPeers, ReducesWhatAllOthersSend) {
  for_each_case(kReduceFromPeers, [&](const Case& each) {
    if (HasFailure()) return;
    const std::vector<std::optional<Launch>> all = launches_of(each);
    const int n = each.shape.ranks;
    const std::size_t bytes = each.block_bytes();
    const bool to_all = each.collective == Collective::reduce_scatter;
    for (int r = 0; r < n; ++r) {
      const CollectiveCall call = each.call(r);
      const ChannelParams& p = params_of(all[static_cast<std::size_t>(r)]);
      const auto part_of = [&](int rank) {
        return call.in_at() + (to_all ? static_cast<std::size_t>(rank) * bytes : 0);
      };
      const auto gets_result = [&](int rank) { return to_all || rank == each.root; };
      EXPECT_EQ(p.root, -1);
      EXPECT_EQ(p.bytes, gets_result(r) ? bytes : 0);
      if (gets_result(r)) {
        EXPECT_TRUE(p.in == part_of(r) && p.out == call.out_at());
      }
      for (int other = 0; other < n; ++other) {
        if (other == r) continue;
        const ChannelEnd& to = p.pairs[entry(r, other, n)].to;
        EXPECT_EQ(to.bytes, gets_result(other) ? bytes : 0);
        EXPECT_EQ(to.data, gets_result(other) ? part_of(other) : nullptr);
        if (gets_result(r)) expect_taken(each, r, p, other);
      }
    }
    EXPECT_FALSE(HasFailure()) << each.describe();
  });
}

TEST(ScatterAllGather, ForwardsAPieceOnEveryRankButTheRoot) {
  for_each_case(kScatterAllGather, [&](const Case& each) {
    if (HasFailure()) return;
    const std::vector<std::optional<Launch>> all = launches_of(each);
    const int n = each.shape.ranks;
    std::size_t next = 0;
    for (int step = 1; step < n; ++step) {
      const int r = (each.root + step) % n;
      const ChannelParams& p = params_of(all[static_cast<std::size_t>(r)]);
      EXPECT_EQ(p.out, each.call(r).out_at(next));
      EXPECT_EQ(static_cast<std::size_t>(p.root), entry(r, each.root, n));
      next += p.bytes;
    }
    EXPECT_EQ(next, each.block_bytes()) << "the pieces of all ranks but the root";
    for (int r = 0; r < n; ++r) {
      const CollectiveCall call = each.call(r);
      const ChannelParams& p = params_of(all[static_cast<std::size_t>(r)]);
      if (r == each.root) {
        EXPECT_EQ(p.root, -1);
        EXPECT_TRUE(p.in == call.in_at() && p.out == call.out_at() && p.bytes == call.block_bytes());
      }
      for (int other = 0; other < n; ++other) {
        if (other == r) continue;
        const ChannelPair& pair = p.pairs[entry(r, other, n)];
        const ChannelParams& of_other = params_of(all[static_cast<std::size_t>(other)]);
        if (other == each.root) {
          EXPECT_EQ(pair.to.bytes, 0u);
          expect_taken(each, r, p, other);
          continue;
        }
        const std::ptrdiff_t begin = of_other.out - each.call(other).out_at();
        if (r == each.root) {
          EXPECT_TRUE(pair.to.data == call.in_at() + begin && pair.to.bytes == of_other.bytes);
          EXPECT_EQ(pair.from.bytes, 0u);
        } else {
          EXPECT_TRUE(pair.to.data == nullptr && pair.to.bytes == p.bytes &&
                      same(pair.to.shape, p.own_shape));
          EXPECT_TRUE(pair.from.data == call.out_at() + begin && pair.from.bytes == of_other.bytes);
        }
      }
    }
    EXPECT_FALSE(HasFailure()) << each.describe();
  });
}

TEST(ScatterAllGather, CopiesNothingOnTheRootInPlace) {
  const Case each{.algorithm = &kScatterAllGather,
                  .collective = Collective::broadcast,
                  .shape = {.ranks = 4, .staging_bytes = 16 << 20, .blocks = 132},
                  .bytes = 64 * kMiB,
                  .in_place = true};
  EXPECT_EQ(params_of(launches_of(each)[0]).bytes, 0u);
}

TEST(ChannelRings, AreSharedByWarpsWhereTheyAreLong) {
  const auto parts = [](const DeviceAlgorithm& algorithm, Collective collective, int ranks, std::size_t bytes,
                        unsigned blocks) {
    const Case each{.algorithm = &algorithm,
                    .collective = collective,
                    .shape = {.ranks = ranks, .staging_bytes = 16 << 20, .blocks = blocks},
                    .bytes = bytes};
    return params_of(launches_of(each)[1]).parts;
  };
  EXPECT_EQ(parts(kReduceFromPeers, Collective::reduce_scatter, 4, kMiB, 132), 1u) << "fits the rings";
  EXPECT_EQ(parts(kReduceFromPeers, Collective::reduce_scatter, 4, 64 * kMiB, 132), 2u);
  EXPECT_EQ(parts(kScatterAllGather, Collective::broadcast, 4, 64 * kMiB, 132), 4u);
  EXPECT_EQ(parts(kScatterAllGather, Collective::broadcast, 4, 64 * kMiB, 1), 1u) << "no room for more";
}

}  // namespace
}  // namespace onehop::cuda
