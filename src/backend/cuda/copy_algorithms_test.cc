// SPDX-License-Identifier: Apache-2.0
// The algorithms whose copies write into the peers' symmetric outputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "backend/cuda/recording_launcher.h"

namespace onehop::cuda {
namespace {

using namespace testing;
using ::testing::ElementsAre;

constexpr std::uint64_t kWindow = 0x1000;

/// Bytes of memory and where they were copied from.
class Memory {
 public:
  void copy(const Copy& copy) {
    const auto to = reinterpret_cast<std::uintptr_t>(copy.to);
    EXPECT_NE(copy.bytes, 0u);
    EXPECT_TRUE(copies_.emplace(to, copy).second) << "written twice";
  }
  /// Expects that exactly these bytes were copied from `from` in order, in any number of copies.
  void expect(const std::byte* to, const std::byte* from, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes;) {
      const auto found = copies_.find(reinterpret_cast<std::uintptr_t>(to) + done);
      ASSERT_NE(found, copies_.end()) << "not written";
      ASSERT_EQ(found->second.from, from + done);
      done += found->second.bytes;
      ASSERT_LE(done, bytes);
      copies_.erase(found);
    }
  }
  void expect_nothing_else() const { EXPECT_TRUE(copies_.empty()); }

 private:
  std::map<std::uintptr_t, Copy> copies_;
};

/// The order that streams guarantee. In both lanes the steps are numbered; a step follows those of its own lane,
/// and those that its lane has waited for.
class Order {
 public:
  using Clock = std::array<std::size_t, 2>;  ///< by lane: the last step that is known to have ended

  explicit Order(const std::deque<Step>& steps) {
    for (const Step& step : steps)
      clocks_.push_back(std::visit([&](const auto& each) { return take(each); }, step));
  }
  /// Whether step j of the sequence starts after step i has ended.
  [[nodiscard]] bool before(std::size_t i, std::size_t j) const {
    const auto lane = static_cast<std::size_t>(lanes_[i]);
    return i != j && clocks_[j][lane] >= clocks_[i][lane];
  }

 private:
  Clock take(const Launch&) { return advance(Lane::caller); }
  Clock take(const Written&) { return advance(Lane::caller); }
  Clock take(const Copy& copy) { return advance(copy.lane); }
  Clock take(const Recorded& recorded) {
    marks_[recorded.mark] = advance(recorded.lane);
    return marks_[recorded.mark];
  }
  Clock take(const Awaited& awaited) {
    EXPECT_TRUE(marks_.contains(awaited.mark)) << "a mark that was not recorded";
    Clock& now = now_[static_cast<std::size_t>(awaited.lane)];
    for (std::size_t lane = 0; lane < 2; ++lane) now[lane] = std::max(now[lane], marks_[awaited.mark][lane]);
    return advance(awaited.lane);
  }
  Clock advance(Lane lane) {
    lanes_.push_back(lane);
    Clock& now = now_[static_cast<std::size_t>(lane)];
    ++now[static_cast<std::size_t>(lane)];
    return now;
  }

  std::array<Clock, 2> now_{};
  std::map<Mark, Clock> marks_;
  std::vector<Lane> lanes_;
  std::vector<Clock> clocks_;
};

bool is_barrier(const Step& step) {
  const auto* const launch = std::get_if<Launch>(&step);
  return launch != nullptr && launch->kernel == "window_barrier";
}

/// Copies may begin when all peers have reached the call, and must have ended when the call ends.
void expect_between_barriers(const RecordingLauncher& launcher) {
  const std::deque<Step>& steps = launcher.steps();
  const Order order(steps);
  std::size_t first = steps.size();
  std::size_t last = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!is_barrier(steps[i])) continue;
    first = std::min(first, i);
    last = i;
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!std::holds_alternative<Copy>(steps[i])) continue;
    EXPECT_TRUE(order.before(first, i));
    EXPECT_TRUE(order.before(i, last));
  }
}

std::vector<std::uint64_t> windows_of(const RecordingLauncher& launcher) {
  std::vector<std::uint64_t> windows;
  for (const WindowBarrierParams& p : launcher.all_params<WindowBarrierParams>()) windows.push_back(p.window);
  return windows;
}

/// What rank a writes to is what rank b reads, within the region.
void expect_same_words(const Launchers& launchers, const std::vector<Barrier>& barriers) {
  const ScratchRegion& region = *kCopyEngine.scratch[0];
  for (std::size_t a = 0; a < barriers.size(); ++a) {
    const auto* const begin =
        reinterpret_cast<const std::uint64_t*>(launchers[a]->scratch(region, static_cast<int>(a)));
    const std::size_t words = region.bytes(launchers[a]->shape()) / sizeof(std::uint64_t);
    EXPECT_GE(barriers[a].own_flags, begin);
    EXPECT_LE(barriers[a].own_flags + kMaxDevices, begin + words);
    EXPECT_GE(reinterpret_cast<const std::uint64_t*>(barriers[a].counter), begin);
    for (std::size_t b = 0; b < barriers.size(); ++b) {
      EXPECT_EQ(barriers[a].peer_flags[b], barriers[b].own_flags + a);
    }
  }
}

TEST(WindowBarrier, HasTheSameWordsOnBothEnds) {
  const ScratchRegion& region = *kCopyEngine.scratch[0];
  for (const GroupShape& shape : group_shapes()) {
    const Launchers launchers =
        run({.algorithm = &kCopyEngine, .collective = Collective::all_gather, .shape = shape, .bytes = kMiB});
    std::vector<WindowBarrierParams> all;
    std::vector<Barrier> barriers;
    for (const auto& launcher : launchers) {
      const std::vector<Launch> launches = launcher->all<Launch>();
      ASSERT_EQ(launches.size(), 2u);
      for (const Launch& launch : launches) {
        EXPECT_EQ(launch.shape.grid, 1u);
        EXPECT_GE(launch.shape.block, static_cast<unsigned>(kMaxDevices)) << "a thread for every peer";
        EXPECT_FALSE(launch.shape.waits_for_previous);
      }
      all.push_back(std::get<WindowBarrierParams>(launches.front().params));
      barriers.push_back(all.back().barrier);
      EXPECT_THAT(windows_of(*launcher), ElementsAre(kWindow, kWindow));
    }
    expect_same_words(launchers, barriers);
    for (std::size_t a = 0; a < all.size(); ++a) {
      for (std::size_t b = 0; b < all.size(); ++b) EXPECT_EQ(all[a].peer_windows[b], all[b].own_windows + a);
      // Words of both parities.
      const std::byte* const begin = launchers[a]->scratch(region, static_cast<int>(a));
      EXPECT_LE(reinterpret_cast<const std::byte*>(all[a].own_windows + 2 * kMaxDevices),
                begin + region.bytes(shape));
      const std::uint64_t* const flags = all[a].barrier.own_flags;
      EXPECT_TRUE(flags + kMaxDevices <= all[a].own_windows || all[a].own_windows + 2 * kMaxDevices <= flags);
    }
  }
}

TEST(CopyEngine, CopiesEveryBlockToItsPlaceOnce) {
  for_each_case(kCopyEngine, [&](const Case& given) {
    for (const bool in_place : {false, true}) {
      if (HasFailure()) return;
      Case each = given;
      each.in_place = in_place;
      Memory memory;
      for (const auto& launcher : run(each)) {
        for (const Copy& copy : launcher->all<Copy>()) memory.copy(copy);
        EXPECT_THAT(windows_of(*launcher), ElementsAre(kWindow, kWindow));
        EXPECT_TRUE(is_barrier(launcher->steps().front()));
        EXPECT_TRUE(is_barrier(launcher->steps().back()));
        expect_between_barriers(*launcher);
      }
      for (int from = 0; from < each.shape.ranks; ++from) {
        for (int to = 0; to < each.shape.ranks; ++to) {
          const std::span<const std::byte> sent = each.call(from).block_to(to);
          const std::span<std::byte> received = each.call(to).block_from(from);
          ASSERT_EQ(sent.size(), received.size());
          if (sent.data() != received.data()) memory.expect(received.data(), sent.data(), sent.size());
        }
      }
      memory.expect_nothing_else();
      EXPECT_FALSE(HasFailure()) << each.describe();
    }
  });
}

TEST(CopyEngine, BeginsWithTheNeighbor) {
  const Launchers launchers = run({.algorithm = &kCopyEngine,
                                   .collective = Collective::all_to_all,
                                   .shape = {.ranks = 4, .staging_bytes = kMiB, .blocks = 132},
                                   .bytes = 64 * kMiB});
  for (int r = 0; r < 4; ++r) {
    std::vector<Copy> copies = launchers[static_cast<std::size_t>(r)]->all<Copy>();
    std::erase_if(copies, [](const Copy& copy) { return copy.lane == Lane::side; });
    ASSERT_EQ(copies.size(), 3u);
    for (int step = 1; step < 4; ++step) {
      EXPECT_EQ(copies[static_cast<std::size_t>(step - 1)].to,
                output_of((r + step) % 4) + static_cast<std::size_t>(r) * 64 * kMiB);
    }
  }
}

/// The part of an all-reduce that copy engines carry.
std::size_t carried_bytes(const Case& each) {
  const std::size_t unit = std::size_t{512} * static_cast<std::size_t>(each.shape.ranks);
  return each.block_bytes() < 2 * unit ? 0 : each.block_bytes() / unit * unit;
}
bool is_carried(const Case& each) {
  return each.shift % 16 == 0 && carried_bytes(each) != 0;
}

TEST(CopyEngineTwoShot, ScattersEveryPieceAndGathersEverySum) {
  for_each_case(kCopyEngineTwoShot, [&](const Case& each) {
    if (HasFailure() || !is_carried(each)) return;
    const auto n = static_cast<std::size_t>(each.shape.ranks);
    const std::size_t piece = carried_bytes(each) / n;
    Memory scattered;  // every destination is written twice: with data to reduce, then with the sum
    Memory gathered;
    for (const auto& launcher : run(each)) {
      const CollectiveCall call = each.call(launcher->rank());
      for (const Copy& copy : launcher->all<Copy>()) {
        EXPECT_EQ(copy.lane, Lane::side);
        const bool from_input = copy.from >= call.in_at() && copy.from < call.in_at() + call.block_bytes();
        (from_input ? scattered : gathered).copy(copy);
      }
    }
    for (std::size_t from = 0; from < n; ++from) {
      const CollectiveCall sender = each.call(static_cast<int>(from));
      for (std::size_t to = 0; to < n; ++to) {
        if (from == to) continue;
        std::byte* const place = each.call(static_cast<int>(to)).out_at(from * piece);
        scattered.expect(place, sender.in_at(to * piece), piece);
        gathered.expect(place, sender.out_at(from * piece), piece);
      }
    }
    scattered.expect_nothing_else();
    gathered.expect_nothing_else();
    EXPECT_FALSE(HasFailure()) << each.describe();
  });
}

TEST(CopyEngineTwoShot, ReducesTwoHalvesOfThePieceAndTheRest) {
  for_each_case(kCopyEngineTwoShot, [&](const Case& each) {
    if (HasFailure() || each.shift % 16 != 0) return;
    const auto n = static_cast<std::size_t>(each.shape.ranks);
    const std::size_t carried = carried_bytes(each);
    const std::size_t piece = carried / n;
    const auto threads = static_cast<unsigned>(max_threads(kernel_ranks(each.shape.ranks, is_sum(each.op))));
    std::vector<std::vector<Barrier>> barriers(2);
    const Launchers launchers = run(each);
    for (const auto& launcher : launchers) {
      const CollectiveCall call = each.call(launcher->rank());
      std::size_t reduced = 0;
      const std::vector<ReducePieceParams> halves = launcher->all_params<ReducePieceParams>();
      EXPECT_EQ(halves.size(), carried == 0 ? 0 : 2);
      for (std::size_t i = 0; i < halves.size(); ++i) {
        const ReducePieceParams& p = halves[i];
        EXPECT_TRUE(p.in == call.in_at() && p.out == call.out_at() && p.bytes == carried && p.piece == piece);
        EXPECT_EQ(p.begin, reduced);
        EXPECT_TRUE(p.begin % 16 == 0 && p.length % 16 == 0);
        EXPECT_TRUE(p.aligned);
        // Where the peers' data arrives: in the output, each in the place of its sender's piece.
        EXPECT_EQ(p.inbox, call.out_at() + p.begin);
        EXPECT_EQ(p.rank_stride, piece);
        reduced += p.length;
        barriers[i].push_back(p.barrier);
      }
      EXPECT_EQ(reduced, piece);
      if (carried != 0) {
        EXPECT_LE(halves[0].length - halves[1].length, 512u);
      }
      std::size_t rest = 0;
      for (const Launch& launch : launcher->all<Launch>()) {
        if (launch.kernel == "reduce_piece") {
          EXPECT_EQ(launch.shape.block, threads);
          EXPECT_FALSE(launch.shape.waits_for_previous);
        }
        if (launch.kernel != "ll_one_shot") continue;
        const auto& p = std::get<PushParams>(launch.params);
        EXPECT_TRUE(p.in == call.in_at() + carried + rest && p.out == call.out_at() + carried + rest);
        rest += p.bytes;
      }
      EXPECT_EQ(carried + rest, call.block_bytes());
    }
    for (const std::vector<Barrier>& each_half : barriers) {
      if (!each_half.empty()) expect_same_words(launchers, each_half);
    }
    EXPECT_FALSE(HasFailure()) << each.describe();
  });
}

TEST(CopyEngineTwoShot, OrdersCopiesAndKernels) {
  for_each_case(kCopyEngineTwoShot, [&](const Case& each) {
    if (HasFailure() || !is_carried(each)) return;
    const auto peers = static_cast<std::size_t>(each.shape.ranks - 1);
    for (const auto& launcher : run(each)) {
      const std::deque<Step>& steps = launcher->steps();
      const Order order(steps);
      std::vector<std::size_t> copies;
      std::vector<std::size_t> kernels;
      std::vector<std::size_t> windows;
      for (std::size_t i = 0; i < steps.size(); ++i) {
        if (std::holds_alternative<Copy>(steps[i])) copies.push_back(i);
        const auto* const launch = std::get_if<Launch>(&steps[i]);
        if (launch != nullptr && launch->kernel == "reduce_piece") kernels.push_back(i);
        if (is_barrier(steps[i])) windows.push_back(i);
      }
      // The first half is scattered, then the second; then the sums are gathered in this order.
      ASSERT_EQ(copies.size(), 4 * peers);
      ASSERT_EQ(kernels.size(), 2u);
      ASSERT_EQ(windows.size(), 4u);
      for (std::size_t half = 0; half < 2; ++half) {
        for (std::size_t i = 0; i < peers; ++i) {
          const std::size_t scatter = copies[half * peers + i];
          const std::size_t gather = copies[(2 + half) * peers + i];
          EXPECT_TRUE(order.before(windows[0], scatter));
          EXPECT_TRUE(order.before(scatter, kernels[half]));
          EXPECT_TRUE(order.before(kernels[half], windows[1 + half]));
          EXPECT_TRUE(order.before(windows[1 + half], gather));
          EXPECT_TRUE(order.before(gather, windows[3]));
        }
      }
      // The second half moves while the first is reduced.
      EXPECT_FALSE(order.before(copies[2 * peers - 1], kernels[0]));
      expect_between_barriers(*launcher);
    }
    EXPECT_FALSE(HasFailure()) << each.describe();
  });
}

TEST(CopyEngineTwoShot, StreamsWhereOutputsAreMisalignedOrTheInput) {
  for_each_case(kCopyEngineTwoShot, [&](const Case& given) {
    if (HasFailure()) return;
    Case each = given;
    if (carried_bytes(each) == 0) return;
    const bool misaligned = each.shift % 16 != 0;
    each.in_place = !misaligned;
    for (const auto& launcher : run(each)) {
      EXPECT_TRUE(launcher->all<Copy>().empty());
      const std::vector<StreamParams> streams = launcher->all_params<StreamParams>();
      ASSERT_EQ(streams.size(), 1u);
      EXPECT_EQ(streams[0].bytes, each.block_bytes());
      // Ranks that are not in place find out that this one is.
      if (misaligned) {
        EXPECT_THAT(windows_of(*launcher), ElementsAre());
      } else {
        EXPECT_THAT(windows_of(*launcher), ElementsAre(~kWindow));
        EXPECT_TRUE(is_barrier(launcher->steps().front()));
      }
    }
    EXPECT_FALSE(HasFailure()) << each.describe();
  });
}

TEST(CopyEngineTwoShot, ReducesWithAllBlocksOfTheTable) {
  Case each{.algorithm = &kCopyEngineTwoShot,
            .shape = {.ranks = 4, .staging_bytes = 16 << 20, .blocks = 132},
            .bytes = 256 * kMiB};
  const auto shape = [&] {
    for (const Launch& launch : run(each).front()->all<Launch>()) {
      if (launch.kernel == "reduce_piece") return launch.shape;
    }
    return LaunchShape{};
  };
  EXPECT_EQ(shape().grid, 132u);
  EXPECT_EQ(shape().block, 512u);
  each.op = ReduceOp::max;
  EXPECT_EQ(shape().block, 256u);
  each.limits = {.blocks = 8, .threads = {}};
  EXPECT_EQ(shape().grid, 8u);
  each.bytes = 64 * kKiB;
  EXPECT_EQ(shape().grid, 2u) << "no more than there is work for";
}

}  // namespace
}  // namespace onehop::cuda
