// SPDX-License-Identifier: Apache-2.0
// Which algorithm a call uses, by the library's table, by the group's own table, and by CallOptions::algorithm.
#include <gtest/gtest.h>

#include "onehop/call.h"
#include "onehop/error.h"

#include "backend/cuda/algorithm.h"
#include "backend/cuda/algorithms/point_to_point/channel_launch.h"
#include "backend/selector_testing.h"

namespace onehop::choices {
namespace {

void expect_ranges(const Selector& selector, const CollectiveCall& call, const Ranges& ranges) {
  std::uint64_t first = 0;
  for (const Range& range : ranges) {
    for (const std::uint64_t bytes : {first, first + 1, range.up_to / 2, range.up_to - 1, range.up_to}) {
      if (bytes < first || bytes > range.up_to) continue;
      EXPECT_EQ(chosen(selector, call, bytes), range.algorithm)
          << to_string(call.collective) << " of " << bytes << " bytes, " << to_string(call.type)
          << (call.options.symmetric ? ", symmetric" : "");
    }
    first = range.up_to + 1;
  }
}

/// Checks all types, with symmetric buffers as well if these make no difference.
void expect_ranges(const Selector& selector, Collective collective, TypeClass types, Buffers buffers,
                   const Ranges& ranges) {
  for (int type = 0; type < kDTypeCount; ++type) {
    if (type_class(static_cast<DType>(type)) == types)
      expect_ranges(selector, call_of(collective, static_cast<DType>(type), buffers), ranges);
  }
}

TEST(Selector, UsesWhatWasFastestWithTwoGpus) {
  const Selector selector({}, Backend::cuda, 2, Links::nvlink);
  for (const Buffers buffers : kBuffers) {
    const bool symmetric = buffers == Buffers::symmetric;
    const auto expect = [&](Collective collective, TypeClass types, const Ranges& ranges) {
      expect_ranges(selector, collective, types, buffers, ranges);
    };
    const std::string_view longest = symmetric ? "copy_engine_two_shot" : "streaming_one_shot";
    expect(all_reduce, TypeClass::floats,
           {{32 * kKiB, "ll_one_shot"},
            {kMiB - 1, "lamport_one_shot"},
            {128 * kMiB - 1, "streaming_one_shot"},
            {kNoLimit, longest}});
    expect(all_reduce, TypeClass::any,
           {{64 * kKiB, "ll_one_shot"}, {128 * kMiB - 1, "streaming_one_shot"}, {kNoLimit, longest}});
    for (const TypeClass types : kClasses) {
      expect(reduce, types, {{kKiB, "ll_one_shot"}, {kNoLimit, "streaming_one_shot"}});
      expect(reduce_scatter, types, {{kNoLimit, "streaming_one_shot"}});
      for (const Collective collective : {all_gather, all_to_all})
        expect(collective, types,
               {{96 * kMiB - 1, "streaming_exchange"},
                {kNoLimit, symmetric ? "copy_engine" : "streaming_exchange"}});
      for (const Collective collective : {broadcast, gather, scatter})
        expect(collective, types,
               {{256 * kKiB, "point_to_point"},
                {64 * kMiB - 1, "streaming_one_way"},
                {kNoLimit, symmetric ? "copy_engine" : "streaming_one_way"}});
    }
  }
}

TEST(Selector, UsesWhatWasFastestWithFourGpus) {
  const Selector selector({}, Backend::cuda, 4, Links::nvlink);
  // Copies pay off where a rank sends 64 MiB, and 12 MiB more for each peer after the first.
  const std::uint64_t moved_by_kernels = 30'758'229;
  ASSERT_LT(3 * moved_by_kernels, 88 * kMiB);
  ASSERT_GE(3 * (moved_by_kernels + 1), 88 * kMiB);
  const std::uint64_t sent_whole = 455 * kKiB;
  ASSERT_LE(3 * sent_whole, cuda::max_packed_bytes(4)) << "what the root sends travels whole";
  for (const Buffers buffers : kBuffers) {
    const bool symmetric = buffers == Buffers::symmetric;
    const auto expect = [&](Collective collective, TypeClass types, const Ranges& ranges) {
      expect_ranges(selector, collective, types, buffers, ranges);
    };
    expect(all_reduce, TypeClass::floats,
           {{16 * kKiB, "ll_one_shot"},
            {256 * kKiB, "lamport_one_shot"},
            {2 * kMiB, "lamport_two_shot_by_peer"},
            {8 * kMiB, "lamport_two_shot"},
            {kNoLimit, "streaming_two_shot"}});
    expect(all_reduce, TypeClass::any, {{256 * kKiB, "ll_one_shot"}, {kNoLimit, "streaming_two_shot"}});
    expect(reduce_scatter, TypeClass::floats,
           {{16 * kKiB, "ll_one_shot"}, {8 * kMiB, "lamport_one_shot"}, {kNoLimit, "reduce_from_peers"}});
    expect(reduce_scatter, TypeClass::any, {{256 * kKiB, "ll_one_shot"}, {kNoLimit, "reduce_from_peers"}});
    expect(reduce, TypeClass::floats,
           {{16 * kKiB, "ll_one_shot"},
            {256 * kKiB, "lamport_one_shot"},
            {1536 * kKiB, "lamport_two_shot_by_peer"},
            {kNoLimit, "streaming_two_shot"}});
    expect(reduce, TypeClass::any, {{256 * kKiB - 1, "ll_one_shot"}, {kNoLimit, "streaming_two_shot"}});
    for (const TypeClass types : kClasses) {
      expect(broadcast, types, {{sent_whole, "point_to_point"}, {kNoLimit, "scatter_all_gather"}});
      for (const Collective collective : {all_gather, all_to_all})
        expect(collective, types,
               {{moved_by_kernels, "streaming_exchange"},
                {kNoLimit, symmetric ? "copy_engine" : "streaming_exchange"}});
      for (const Collective collective : {gather, scatter})
        expect(
            collective, types,
            {{moved_by_kernels, "point_to_point"}, {kNoLimit, symmetric ? "copy_engine" : "point_to_point"}});
    }
  }
}

TEST(Selector, SendsToAllPeersUpToTheBytesOfFourRanks) {
  // A limit of the bytes that a rank sends: the message for every peer.
  for (int ranks = 3; ranks <= kMaxDevices; ++ranks) {
    const auto peers = static_cast<std::uint64_t>(ranks - 1);
    const Selector selector({}, Backend::cuda, ranks, Links::nvlink);
    expect_ranges(selector, reduce_scatter, TypeClass::floats, Buffers::any,
                  {{48 * kKiB / peers, "ll_one_shot"},
                   {8 * kMiB, "lamport_one_shot"},
                   {kNoLimit, "reduce_from_peers"}});
    expect_ranges(selector, all_reduce, TypeClass::any, Buffers::any,
                  {{768 * kKiB / peers, "ll_one_shot"}, {kNoLimit, "streaming_two_shot"}});
    expect_ranges(selector, broadcast, TypeClass::any, Buffers::any,
                  {{1365 * kKiB / peers, "point_to_point"}, {kNoLimit, "scatter_all_gather"}});
    // A limit of the bytes per rank.
    const std::uint64_t by_peer = 512 * kKiB * static_cast<std::uint64_t>(ranks);
    EXPECT_EQ(chosen(selector, call_of(all_reduce, DType::bf16), by_peer), "lamport_two_shot_by_peer");
    EXPECT_EQ(chosen(selector, call_of(all_reduce, DType::bf16), by_peer + 1), "lamport_two_shot");
  }
}

TEST(Selector, GoesFromOneShotToTwoShotOnceWhereThatSendsLess) {
  for (const Backend backend : kBackends) {
    for (const Links links : kLinks) {
      for (int ranks = 2; ranks <= max_ranks(backend); ++ranks) {
        const Selector selector({}, backend, ranks, links);
        for (const TypeClass types : kClasses) {
          // Two GPUs move as many bytes in one-shot, which streams long messages.
          if (backend == Backend::cuda && ranks == 2) continue;
          const CollectiveCall call = call_of(all_reduce, type_of(types));
          const auto kind = [&](std::uint64_t bytes) {
            return selector.select(call, bytes, {}).algorithm->kind;
          };
          EXPECT_EQ(kind(0), Algorithm::one_shot);
          EXPECT_EQ(kind(1), Algorithm::one_shot);
          EXPECT_EQ(kind(64 * kMiB), Algorithm::two_shot);
          bool two_shot = false;
          for (std::uint64_t bytes = 1; bytes <= kNoLimit / 2; bytes += bytes / 8 + 1) {
            const bool now = kind(bytes) == Algorithm::two_shot;
            ASSERT_TRUE(now || !two_shot) << bytes;
            two_shot = now;
          }
        }
      }
    }
  }
}

TEST(Selector, UsesOneShotOnTheHostUpToALimitByTheNumberOfRanks) {
  for (int ranks = 2; ranks <= kMaxHostRanks; ++ranks) {
    const Selector selector({}, Backend::host, ranks, Links::nvlink);
    for (const Collective collective : {all_reduce, reduce}) {
      const bool to_all = collective == all_reduce;
      const std::uint64_t limit = ranks == 2   ? kMiB
                                  : ranks == 3 ? 256 * kKiB
                                  : ranks == 4 ? (to_all ? 8 : 64) * kKiB
                                               : (to_all ? 2 : 8) * kKiB;
      for (const TypeClass types : kClasses)
        expect_ranges(selector, collective, types, Buffers::any,
                      {{limit, "one_shot"}, {kNoLimit, "two_shot"}});
    }
  }
}

TEST(Selector, FindsAnAlgorithmForEveryCall) {
  for (const Backend backend : kBackends) {
    for (const Links links : kLinks) {
      for (int ranks = 2; ranks <= max_ranks(backend); ++ranks) {
        const Selector selector({}, backend, ranks, links);
        for_each_class(backend, [&](Collective collective, TypeClass types, Buffers buffers) {
          for (const std::uint64_t bytes : kSizes) {
            const auto& selection = selector.select(call_of(collective, type_of(types), buffers), bytes, {});
            ASSERT_NE(selection.algorithm, nullptr);
            EXPECT_TRUE(selection.algorithm->carries(collective, types, buffers));
            EXPECT_EQ(selection.choice.algorithm, selection.algorithm->name);
          }
        });
      }
    }
  }
}

TEST(Selector, FindsAnAlgorithmOfTheKindThatTheCallerNames) {
  for (const Backend backend : kBackends) {
    for (const Links links : kLinks) {
      for (int ranks = 2; ranks <= max_ranks(backend); ++ranks) {
        const Selector selector({}, backend, ranks, links);
        for_each_class(backend, [&](Collective collective, TypeClass types, Buffers buffers) {
          if (!traits_of(collective).has_two_shot) return;
          for (const Algorithm kind : kKinds) {
            for (const std::uint64_t bytes : kSizes) {
              const auto& selection =
                  selector.select(call_of(collective, type_of(types), buffers), bytes, kind);
              ASSERT_NE(selection.algorithm, nullptr);
              EXPECT_EQ(selection.algorithm->kind, kind);
              EXPECT_TRUE(selection.algorithm->carries(collective, types, buffers));
              EXPECT_EQ(selection.choice.algorithm, selection.algorithm->name);
            }
          }
        });
      }
    }
  }
}

TEST(Selector, FindsTheAlgorithmOfCallsThatHaveNoChoice) {
  for (const Backend backend : kBackends) {
    for (int ranks = 1; ranks <= max_ranks(backend); ++ranks) {
      const Selector selector({}, backend, ranks, Links::nvlink);
      const auto tunable = ranks == 1 ? std::vector<Collective>{} : tunable_collectives(backend);
      for (const Collective collective : {all_reduce, all_gather, reduce_scatter, broadcast, reduce,
                                          all_to_all, all_to_all_v, gather, scatter}) {
        if (std::ranges::find(tunable, collective) != tunable.end()) continue;
        const auto& selected = selector.select(call_of(collective, DType::i32), 64, {});
        ASSERT_TRUE(selected.algorithm->takes(ranks));
        EXPECT_TRUE(selected.algorithm->without_choice.contains(collective));
        EXPECT_EQ(selected.algorithm->kind, Algorithm::one_shot);
      }
      if (ranks != 1) continue;
      for (const Algorithm kind : kKinds) {
        EXPECT_EQ(&selector.select(call_of(all_reduce, DType::f32), 64, kind),
                  &selector.select(call_of(all_reduce, DType::f32), 64, {}));
      }
    }
  }
}

TEST(Selector, UsesTheAlgorithmForLongMessagesIfACallerNamesAKindThatTheTableDoesNotUse) {
  for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
    const Selector selector({}, Backend::cuda, ranks, Links::nvlink);
    const auto name = [&](Collective collective, DType type, std::uint64_t bytes, Algorithm kind) {
      return chosen(selector, call_of(collective, type), bytes, kind);
    };
    EXPECT_EQ(name(all_reduce, DType::bf16, 1, Algorithm::one_shot), "ll_one_shot");
    EXPECT_EQ(name(all_reduce, DType::bf16, 256 * kKiB, Algorithm::one_shot), "lamport_one_shot");
    EXPECT_EQ(name(all_reduce, DType::bf16, 64 * kMiB, Algorithm::one_shot),
              ranks == 2 ? "streaming_one_shot" : "lamport_one_shot");
    EXPECT_EQ(name(all_reduce, DType::i32, 64 * kMiB, Algorithm::one_shot),
              ranks == 2 ? "streaming_one_shot" : "ll_one_shot");
    EXPECT_EQ(name(all_reduce, DType::bf16, 1, Algorithm::two_shot),
              ranks == 2 ? "streaming_two_shot" : "lamport_two_shot_by_peer");
    EXPECT_EQ(name(all_reduce, DType::i32, 1, Algorithm::two_shot), "streaming_two_shot");
    EXPECT_EQ(name(reduce, DType::bf16, 64 * kMiB, Algorithm::one_shot),
              ranks == 2 ? "streaming_one_shot" : "reduce_from_peers");
    EXPECT_EQ(name(reduce, DType::i32, 64 * kMiB, Algorithm::one_shot),
              ranks == 2 ? "streaming_one_shot" : "reduce_from_peers");
    EXPECT_EQ(name(reduce, DType::bf16, 64 * kMiB, Algorithm::two_shot), "streaming_two_shot");
    EXPECT_EQ(name(reduce, DType::i32, 1, Algorithm::two_shot), "streaming_two_shot");
  }
}

TEST(Selector, UsesTheGroupsOwnTableUpToItsSizes) {
  const AlgorithmChoice choice{.algorithm = "two_shot", .chunk = 64 << 10};
  const Tuning host = own_table({.ranks = 2, .up_to = 4096, .choice = choice});
  const Selector two(host, Backend::host, 2, Links::nvlink);
  EXPECT_EQ(two.select(call_of(all_reduce, DType::f32), 4096, {}).choice, choice);
  EXPECT_EQ(chosen(two, call_of(all_reduce, DType::f32), 4096), "two_shot");
  EXPECT_EQ(chosen(two, call_of(all_reduce, DType::f32), 4097), "one_shot");
  EXPECT_EQ(chosen(two, call_of(reduce, DType::f32), 4096), "one_shot") << "the row of another collective";
  EXPECT_EQ(chosen(Selector(host, Backend::host, 3, Links::nvlink), call_of(all_reduce, DType::f32), 4096),
            "one_shot")
      << "the row of another number of ranks";

  const AlgorithmChoice launch{.algorithm = "lamport_two_shot", .blocks = 32, .threads = 128};
  const Tuning cuda = own_table({.backend = Backend::cuda,
                                 .ranks = 4,
                                 .types = TypeClass::floats,
                                 .up_to = 64 * kMiB,
                                 .choice = launch});
  const Selector four(cuda, Backend::cuda, 4, Links::nvlink);
  EXPECT_EQ(four.select(call_of(all_reduce, DType::f16), 64 * kMiB, {}).choice, launch);
  EXPECT_EQ(chosen(four, call_of(all_reduce, DType::f16), 64 * kMiB + 16), "streaming_two_shot");
  EXPECT_EQ(chosen(four, call_of(all_reduce, DType::i32), kMiB), "streaming_two_shot")
      << "the row of another class of types";
  EXPECT_EQ(chosen(Selector(cuda, Backend::host, 4, Links::nvlink), call_of(all_reduce, DType::f16), 64),
            "one_shot")
      << "the row of another backend";
}

TEST(Selector, UsesTheFirstRowOfTheGroupsOwnTableThatMatches) {
  const auto row = [](TypeClass types, Buffers buffers, std::uint64_t up_to, const char* algorithm) {
    return TuningRow{.collective = all_gather,
                     .backend = Backend::cuda,
                     .ranks = 2,
                     .types = types,
                     .buffers = buffers,
                     .up_to = up_to,
                     .choice = AlgorithmChoice{.algorithm = algorithm}};
  };
  const Tuning own{.device = "",
                   .rows = {row(TypeClass::floats, Buffers::any, kMiB, "point_to_point"),
                            row(TypeClass::any, Buffers::symmetric, 2 * kMiB, "copy_engine")}};
  const Selector selector(own, Backend::cuda, 2, Links::nvlink);
  const CollectiveCall floats = call_of(all_gather, DType::f32, Buffers::symmetric);
  const CollectiveCall integers = call_of(all_gather, DType::u8, Buffers::symmetric);
  expect_ranges(selector, floats,
                {{kMiB, "point_to_point"}, {2 * kMiB, "copy_engine"}, {96 * kMiB - 1, "streaming_exchange"}});
  expect_ranges(selector, integers, {{2 * kMiB, "copy_engine"}, {96 * kMiB - 1, "streaming_exchange"}});
  EXPECT_EQ(chosen(selector, call_of(all_gather, DType::u8), kMiB), "streaming_exchange")
      << "copy engines need symmetric outputs";
}

TEST(Selector, UsesTheLibrarysTableForDefaultRowsOfTheGroupsOwnTable) {
  for (const Backend backend : kBackends) {
    const Selector without({}, backend, 4, Links::nvlink);
    for_each_class(backend, [&](Collective collective, TypeClass types, Buffers buffers) {
      Tuning own = own_table({.collective = collective, .backend = backend, .ranks = 4, .types = types});
      // No call reaches the second row.
      own.rows.push_back(own.rows.front());
      own.rows.back().choice = AlgorithmChoice{.algorithm = "copy_engine_two_shot"};
      const Selector with(own, backend, 4, Links::nvlink);
      const CollectiveCall call = call_of(collective, type_of(types), buffers);
      for (const std::uint64_t bytes : kSizes)
        EXPECT_EQ(chosen(with, call, bytes), chosen(without, call, bytes));
    });
  }
}

TEST(Selector, IgnoresTheGroupsOwnTableIfTheCallerNamesAKind) {
  const AlgorithmChoice choice{.algorithm = "lamport_two_shot", .blocks = 32, .threads = 128};
  const Tuning own = own_table({.backend = Backend::cuda, .ranks = 2, .choice = choice});
  const Selector selector(own, Backend::cuda, 2, Links::nvlink);
  const CollectiveCall call = call_of(all_reduce, DType::bf16);
  EXPECT_EQ(chosen(selector, call, kMiB), "lamport_two_shot");
  EXPECT_EQ(chosen(selector, call, kMiB, Algorithm::one_shot), "streaming_one_shot");
  EXPECT_EQ(selector.select(call, kMiB, Algorithm::two_shot).choice.blocks, std::nullopt);
}

TEST(Selector, NamesTheCallThatNoAlgorithmCarries) {
  const Selector selector({}, Backend::cuda, 2, Links::nvlink);
  const auto message = [&](const CollectiveCall& call, std::optional<Algorithm> kind) {
    try {
      (void)selector.select(call, kMiB, kind);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      return error.message();
    }
    return std::string();
  };
  EXPECT_EQ(message(call_of(barrier, DType::u8), {}),
            "internal error: no algorithm of the cuda backend carries barrier of u8");
  EXPECT_EQ(message(call_of(all_gather, DType::bf16), Algorithm::two_shot),
            "internal error: no two-shot algorithm of the cuda backend carries all-gather of bf16");
}

}  // namespace
}  // namespace onehop::choices
