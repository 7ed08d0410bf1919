// SPDX-License-Identifier: Apache-2.0
// Which algorithm a call uses, by the library's table, by the group's own table, and by CallOptions::algorithm.
#include "backend/selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <string>

#include "onehop/call.h"

#include "backend/cuda/algorithm.h"
#include "backend/cuda/algorithms/point_to_point/channel_launch.h"
#include "backend/host/all_reduce.h"
#include "backend/host/chunk.h"

namespace onehop {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using enum Collective;

constexpr std::uint64_t kKiB = 1 << 10;
constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kSizes[] = {0,          1,         2,         64,        65,
                                    4096,       8 * kKiB,  16 * kKiB, 64 * kKiB, kMiB + 3,
                                    256 * kKiB, 10 * kMiB, 64 * kMiB, 1ull << 40};
constexpr std::array kBackends{Backend::host, Backend::cuda};
constexpr std::array kLinks{Links::nvlink, Links::pcie};
constexpr std::array kClasses{TypeClass::floats, TypeClass::any};
constexpr std::array kBuffers{Buffers::any, Buffers::symmetric};
constexpr std::array kKinds{Algorithm::one_shot, Algorithm::two_shot};

constexpr int max_ranks(Backend backend) {
  return backend == Backend::cuda ? kMaxDevices : kMaxHostRanks;
}

CollectiveCall call_of(Collective collective, DType type, Buffers buffers = Buffers::any) {
  CollectiveCall call;
  call.collective = collective;
  call.type = type;
  call.root = Rank{0};
  call.options.symmetric = buffers == Buffers::symmetric;
  return call;
}
DType type_of(TypeClass types) {
  return types == TypeClass::floats ? DType::bf16 : DType::i32;
}

/// The default algorithm.
std::string_view chosen(const Selector& selector, const CollectiveCall& call, std::uint64_t bytes,
                        std::optional<Algorithm> kind = {}) {
  return selector.select(call, bytes, kind).algorithm->name;
}

/// Consecutive ranges of sizes and their algorithms.
struct Range {
  std::uint64_t up_to;
  std::string_view algorithm;
};
using Ranges = std::vector<Range>;

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

constexpr Collective kBlockMovers[] = {all_gather, all_to_all, gather, scatter};

TEST(Selector, UsesWhatWasFastestWithTwoGpus) {
  const Selector selector({}, Backend::cuda, 2, Links::nvlink);
  for (const Buffers buffers : kBuffers) {
    const bool symmetric = buffers == Buffers::symmetric;
    const auto expect = [&](Collective collective, TypeClass types, const Ranges& ranges) {
      expect_ranges(selector, collective, types, buffers, ranges);
    };
    const std::string_view longest = symmetric ? "copy_engine_two_shot" : "pipelined_two_shot";
    expect(all_reduce, TypeClass::floats,
           {{32 * kKiB, "ll_one_shot"},
            {kMiB - 1, "lamport_one_shot"},
            {128 * kMiB - 1, "streaming_one_shot"},
            {kNoLimit, symmetric ? "copy_engine_two_shot" : "streaming_one_shot"}});
    expect(all_reduce, TypeClass::any,
           {{2 * kMiB, "ll_one_shot"}, {128 * kMiB - 1, "pipelined_two_shot"}, {kNoLimit, longest}});
    expect(reduce_scatter, TypeClass::floats,
           {{48 * kKiB, "ll_one_shot"}, {8 * kMiB, "lamport_one_shot"}, {kNoLimit, "reduce_from_peers"}});
    expect(reduce_scatter, TypeClass::any, {{256 * kKiB, "ll_one_shot"}, {kNoLimit, "reduce_from_peers"}});
    expect(reduce, TypeClass::floats,
           {{32 * kKiB, "ll_one_shot"},
            {2 * kMiB, "lamport_one_shot"},
            {4 * kMiB, "lamport_two_shot"},
            {kNoLimit, "reduce_from_peers"}});
    expect(reduce, TypeClass::any, {{256 * kKiB, "ll_one_shot"}, {kNoLimit, "reduce_from_peers"}});
    for (const TypeClass types : kClasses) {
      for (const Collective collective : {all_gather, broadcast, all_to_all, gather, scatter})
        expect(collective, types,
               {{64 * kMiB - 1, "point_to_point"}, {kNoLimit, symmetric ? "copy_engine" : "point_to_point"}});
    }
  }
}

TEST(Selector, UsesWhatWasFastestWithFourGpus) {
  const Selector selector({}, Backend::cuda, 4, Links::nvlink);
  // Copies pay off where a rank sends 64 MiB, and 12 MiB more for each peer after the first.
  const std::uint64_t moved_by_kernels = 30'758'229;
  ASSERT_LT(3 * moved_by_kernels, 88 * kMiB);
  ASSERT_GE(3 * (moved_by_kernels + 1), 88 * kMiB);
  const std::uint64_t sent_whole = cuda::max_packed_bytes(4) / 3;
  ASSERT_EQ(sent_whole, 465'920u);
  for (const Buffers buffers : kBuffers) {
    const bool symmetric = buffers == Buffers::symmetric;
    const auto expect = [&](Collective collective, TypeClass types, const Ranges& ranges) {
      expect_ranges(selector, collective, types, buffers, ranges);
    };
    const std::string_view longest = symmetric ? "copy_engine_two_shot" : "pipelined_two_shot";
    expect(all_reduce, TypeClass::floats,
           {{16 * kKiB, "ll_one_shot"},
            {256 * kKiB, "lamport_one_shot"},
            {2 * kMiB, "lamport_two_shot_by_peer"},
            {8 * kMiB, "lamport_two_shot"},
            {kNoLimit, "streaming_two_shot"}});
    expect(all_reduce, TypeClass::any,
           {{256 * kKiB, "ll_one_shot"}, {256 * kMiB - 1, "pipelined_two_shot"}, {kNoLimit, longest}});
    expect(reduce_scatter, TypeClass::floats,
           {{16 * kKiB, "ll_one_shot"}, {8 * kMiB, "lamport_one_shot"}, {kNoLimit, "reduce_from_peers"}});
    expect(reduce_scatter, TypeClass::any, {{256 * kKiB, "ll_one_shot"}, {kNoLimit, "reduce_from_peers"}});
    expect(reduce, TypeClass::floats,
           {{16 * kKiB, "ll_one_shot"},
            {256 * kKiB, "lamport_one_shot"},
            {1536 * kKiB, "lamport_two_shot_by_peer"},
            {kNoLimit, "streaming_two_shot"}});
    expect(reduce, TypeClass::any, {{256 * kKiB, "ll_one_shot"}, {kNoLimit, "reduce_and_forward"}});
    for (const TypeClass types : kClasses) {
      expect(broadcast, types, {{sent_whole, "point_to_point"}, {kNoLimit, "scatter_all_gather"}});
      for (const Collective collective : kBlockMovers)
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
                  {{768 * kKiB / peers, "ll_one_shot"}, {kNoLimit, "pipelined_two_shot"}});
    expect_ranges(selector, broadcast, TypeClass::any, Buffers::any,
                  {{1365 * kKiB / peers, "point_to_point"}, {kNoLimit, "scatter_all_gather"}});
    // A limit of the bytes per rank.
    expect_ranges(selector, all_reduce, TypeClass::any, Buffers::symmetric,
                  {{768 * kKiB / peers, "ll_one_shot"},
                   {(256 * kMiB - 1) * static_cast<std::uint64_t>(ranks) / 4, "pipelined_two_shot"},
                   {kNoLimit, "copy_engine_two_shot"}});
  }
}

TEST(Selector, GoesFromOneShotToTwoShotOnceWhereThatSendsLess) {
  for (const Backend backend : kBackends) {
    for (const Links links : kLinks) {
      for (int ranks = 2; ranks <= max_ranks(backend); ++ranks) {
        const Selector selector({}, backend, ranks, links);
        for (const TypeClass types : kClasses) {
          // Two GPUs move as many bytes in one-shot, which streams long messages of floats.
          if (backend == Backend::cuda && ranks == 2 && types == TypeClass::floats) continue;
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

/// Calls a function with every class of calls that have a choice.
template <class Body>
void for_each_class(Backend backend, Body&& body) {
  for (const Collective collective : tunable_collectives(backend)) {
    for (const TypeClass types : kClasses) {
      for (const Buffers buffers : kBuffers) body(collective, types, buffers);
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
    EXPECT_EQ(name(all_reduce, DType::i32, 64 * kMiB, Algorithm::one_shot), "ll_one_shot");
    EXPECT_EQ(name(all_reduce, DType::bf16, 1, Algorithm::two_shot),
              ranks == 2 ? "pipelined_two_shot" : "lamport_two_shot_by_peer");
    EXPECT_EQ(name(all_reduce, DType::i32, 1, Algorithm::two_shot), "pipelined_two_shot");
    EXPECT_EQ(name(reduce, DType::bf16, 64 * kMiB, Algorithm::one_shot), "reduce_from_peers");
    EXPECT_EQ(name(reduce, DType::i32, 64 * kMiB, Algorithm::one_shot), "reduce_from_peers");
    EXPECT_EQ(name(reduce, DType::bf16, 64 * kMiB, Algorithm::two_shot),
              ranks == 2 ? "reduce_and_forward" : "streaming_two_shot");
    EXPECT_EQ(name(reduce, DType::i32, 1, Algorithm::two_shot), "reduce_and_forward");
  }
}

Tuning own_table(const TuningRow& row) {
  return {.device = "", .rows = {row}};
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
  EXPECT_EQ(chosen(four, call_of(all_reduce, DType::i32), kMiB), "pipelined_two_shot")
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
                {{kMiB, "point_to_point"}, {2 * kMiB, "copy_engine"}, {64 * kMiB - 1, "point_to_point"}});
  expect_ranges(selector, integers, {{2 * kMiB, "copy_engine"}, {64 * kMiB - 1, "point_to_point"}});
  EXPECT_EQ(chosen(selector, call_of(all_gather, DType::u8), kMiB), "point_to_point")
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

/// For calls of one class: where each algorithm of a table ends, in order of size.
std::vector<Range> ranges_of(const Tuning& table, Collective collective, TypeClass types, Buffers buffers) {
  std::vector<Range> ranges;
  for (const TuningRow& row : table.rows) {
    if (row.collective != collective || (row.types != TypeClass::any && row.types != types) ||
        (row.buffers != Buffers::any && row.buffers != buffers))
      continue;
    if (!ranges.empty() && row.up_to <= ranges.back().up_to) continue;
    ranges.push_back({row.up_to, row.choice->algorithm});
  }
  return ranges;
}

TEST(DefaultTuning, MarksRowsThatWereNotMeasured) {
  for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
    for (const Links links : kLinks) {
      const Tuning table = default_tuning(Backend::cuda, ranks, links);
      EXPECT_FALSE(table.rows.empty());
      for (const TuningRow& row : table.rows) {
        EXPECT_EQ(row.derived, links == Links::pcie || (ranks != 2 && ranks != 4));
        EXPECT_EQ(row.backend, Backend::cuda);
        EXPECT_EQ(row.ranks, ranks);
      }
    }
  }
  for (int ranks = 2; ranks <= kMaxHostRanks; ++ranks) {
    for (const TuningRow& row : default_tuning(Backend::host, ranks).rows)
      EXPECT_EQ(row.derived, ranks > 4 && ranks != 8);
  }
}

TEST(DefaultTuning, IsEmptyForOneRankAndRefusesGroupsThatCannotExist) {
  for (const Backend backend : kBackends) {
    EXPECT_THAT(default_tuning(backend, 1).rows, IsEmpty());
    for (const int ranks : {-1, 0, max_ranks(backend) + 1})
      EXPECT_THROW((void)default_tuning(backend, ranks), Error) << ranks;
  }
}

// More ranks make it dearer to send a message to all peers, and leave less of it to each.
TEST(DefaultTuning, DerivesLimitsThatMoveOneWayWithTheNumberOfRanks) {
  for (const Links links : kLinks) {
    for (int ranks = 4; ranks <= kMaxDevices; ++ranks) {
      const Tuning fewer = default_tuning(Backend::cuda, ranks - 1, links);
      const Tuning more = default_tuning(Backend::cuda, ranks, links);
      for_each_class(Backend::cuda, [&](Collective collective, TypeClass types, Buffers buffers) {
        const std::vector<Range> before = ranges_of(fewer, collective, types, buffers);
        std::set<std::string_view> seen;
        for (const Range& now : ranges_of(more, collective, types, buffers)) {
          if (!seen.insert(now.algorithm).second) continue;
          const auto same = std::ranges::find(before, now.algorithm, &Range::algorithm);
          ASSERT_NE(same, before.end()) << now.algorithm;
          const bool grows = now.algorithm.find("two_shot") != std::string_view::npos;
          EXPECT_TRUE(grows ? now.up_to >= same->up_to : now.up_to <= same->up_to)
              << now.algorithm << ": " << same->up_to << " with " << ranks - 1 << " ranks, then "
              << now.up_to;
        }
      });
    }
  }
}

TEST(DefaultTuning, StopsSendingMoreBytesEarlierOnPcie) {
  for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
    const std::vector<TuningRow> nvlink = default_tuning(Backend::cuda, ranks).rows;
    const std::vector<TuningRow> pcie = default_tuning(Backend::cuda, ranks, Links::pcie).rows;
    ASSERT_EQ(nvlink.size(), pcie.size());
    for (std::size_t i = 0; i < nvlink.size(); ++i) {
      const std::string& name = nvlink[i].choice->algorithm;
      // LL packets double the bytes. One-shot sends the message to all peers, of which there are several.
      const bool sends_more = name == "ll_one_shot" || (name == "lamport_one_shot" && ranks > 2 &&
                                                        nvlink[i].collective != reduce_scatter);
      TuningRow expected = nvlink[i];
      if (sends_more) expected.up_to /= 8;
      expected.derived = true;
      EXPECT_EQ(pcie[i], expected) << name;
    }
  }
}

TEST(DefaultTuning, HasNoRowThatNoCallReaches) {
  for (const Backend backend : kBackends) {
    for (const Links links : kLinks) {
      for (int ranks = 2; ranks <= max_ranks(backend); ++ranks) {
        const Tuning table = default_tuning(backend, ranks, links);
        for (const TuningRow& row : table.rows) {
          const TuningQuery last{.collective = row.collective,
                                 .backend = backend,
                                 .ranks = ranks,
                                 .type = type_of(row.types),
                                 .buffers = row.buffers,
                                 .bytes = row.up_to};
          EXPECT_EQ(table.find(last), &row) << ranks << " ranks, " << to_string(row.collective) << ", "
                                            << row.choice->algorithm << " up to " << row.up_to;
        }
      }
    }
  }
}

TEST(DefaultTuning, ChoosesAsTheSelectorDoesAndIsReadBackAsItIsWritten) {
  for (const Backend backend : kBackends) {
    for (const Links links : kLinks) {
      for (int ranks = 2; ranks <= max_ranks(backend); ++ranks) {
        const Tuning table = default_tuning(backend, ranks, links);
        ASSERT_EQ(Tuning::from_json(table.to_json()), table) << ranks;
        const Selector selector({}, backend, ranks, links);
        for_each_class(backend, [&](Collective collective, TypeClass types, Buffers buffers) {
          for (const std::uint64_t bytes : kSizes) {
            const TuningRow* const row = table.find({.collective = collective,
                                                     .backend = backend,
                                                     .ranks = ranks,
                                                     .type = type_of(types),
                                                     .buffers = buffers,
                                                     .bytes = bytes});
            ASSERT_NE(row, nullptr);
            EXPECT_EQ(row->choice->algorithm,
                      chosen(selector, call_of(collective, type_of(types), buffers), bytes));
          }
        });
      }
    }
  }
}

TEST(Algorithms, AreNamedByCollectiveTypesAndBuffers) {
  EXPECT_THAT(tunable_collectives(Backend::host), ElementsAre(all_reduce, reduce));
  EXPECT_THAT(
      tunable_collectives(Backend::cuda),
      ElementsAre(all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, gather, scatter));
  const auto names = [](Collective collective, TypeClass types, Buffers buffers) {
    return algorithm_names(Backend::cuda, collective, types, buffers);
  };
  EXPECT_THAT(
      names(all_reduce, TypeClass::floats, Buffers::symmetric),
      ElementsAre("ll_one_shot", "lamport_one_shot", "lamport_two_shot_by_peer", "lamport_two_shot",
                  "streaming_one_shot", "streaming_two_shot", "pipelined_two_shot", "copy_engine_two_shot"));
  EXPECT_THAT(names(all_reduce, TypeClass::any, Buffers::any),
              ElementsAre("ll_one_shot", "pipelined_two_shot"));
  EXPECT_THAT(names(reduce_scatter, TypeClass::floats, Buffers::any),
              ElementsAre("ll_one_shot", "lamport_one_shot", "reduce_from_peers"));
  EXPECT_THAT(names(reduce, TypeClass::any, Buffers::symmetric),
              ElementsAre("ll_one_shot", "reduce_from_peers", "reduce_and_forward"));
  EXPECT_THAT(names(broadcast, TypeClass::any, Buffers::symmetric),
              ElementsAre("point_to_point", "scatter_all_gather", "copy_engine"));
  for (const Collective collective : kBlockMovers) {
    EXPECT_THAT(names(collective, TypeClass::any, Buffers::symmetric),
                ElementsAre("point_to_point", "copy_engine"));
    EXPECT_THAT(names(collective, TypeClass::any, Buffers::any), ElementsAre("point_to_point"));
  }
  for (const Collective collective : {all_to_all_v, send, recv, barrier})
    EXPECT_THAT(names(collective, TypeClass::floats, Buffers::symmetric), IsEmpty());
  EXPECT_THAT(algorithm_names(Backend::host, all_reduce), ElementsAre("one_shot", "two_shot"));
  EXPECT_THAT(algorithm_names(Backend::host, all_gather), IsEmpty());
}

TEST(Algorithms, OfGpusAreThoseThatCanRun) {
  const std::span<const AlgorithmTraits* const> traits = cuda::algorithms();
  const std::span<const cuda::DeviceAlgorithm* const> all = cuda::device_algorithms();
  ASSERT_EQ(traits.size(), all.size());
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(traits[i], all[i]);
    EXPECT_NE(all[i]->run, nullptr);
    EXPECT_FALSE(all[i]->kernels.empty() && all[i]->plain_kernels.empty());
    EXPECT_TRUE(names.insert(all[i]->name).second) << all[i]->name;
  }
}

TEST(Algorithms, CarryTheTypesThatTheirKernelsExistFor) {
  for (const cuda::DeviceAlgorithm* const each : cuda::device_algorithms()) {
    for (const cuda::ReductionKernel* const kernel : each->kernels) {
      EXPECT_TRUE(kernel->types == TypeClass::any || each->types == kernel->types) << each->name;
    }
  }
}

TEST(CandidateChoices, BeginWithTheDefaultAndOfferEveryAlgorithm) {
  for (const Backend backend : kBackends) {
    for (int ranks = 2; ranks <= max_ranks(backend); ++ranks) {
      for_each_class(backend, [&](Collective collective, TypeClass types, Buffers buffers) {
        const auto choices = candidate_choices(backend, collective, ranks, types, buffers);
        ASSERT_FALSE(choices.empty());
        EXPECT_EQ(choices.front(), std::nullopt);
        std::set<std::string_view> offered;
        for (std::size_t i = 1; i < choices.size(); ++i) {
          ASSERT_TRUE(choices[i].has_value());
          EXPECT_EQ(std::ranges::count(choices, choices[i]), 1) << to_string(*choices[i]);
          offered.insert(choices[i]->algorithm);
        }
        const auto names = algorithm_names(backend, collective, types, buffers, ranks);
        EXPECT_EQ(offered, std::set<std::string_view>(names.begin(), names.end()));
      });
    }
  }
}

TEST(CandidateChoices, NameOnlyWhatTheAlgorithmTakes) {
  for (const Backend backend : kBackends) {
    for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
      for_each_class(backend, [&](Collective collective, TypeClass types, Buffers buffers) {
        for (const auto& choice : candidate_choices(backend, collective, ranks, types, buffers)) {
          if (!choice) continue;
          const auto all = algorithms(backend);
          const auto found = std::ranges::find(all, choice->algorithm, &AlgorithmTraits::name);
          ASSERT_NE(found, all.end());
          EXPECT_TRUE((*found)->carries(collective, types, buffers)) << choice->algorithm;
          EXPECT_TRUE((*found)->takes(ranks)) << choice->algorithm;
          EXPECT_EQ(choice->chunk.has_value(), (*found)->takes_chunk) << to_string(*choice);
          EXPECT_EQ(choice->threads.has_value(), (*found)->takes_threads) << to_string(*choice);
          EXPECT_TRUE((*found)->takes_blocks || !choice->blocks) << to_string(*choice);
          EXPECT_EQ(choice->chunk.value_or(64) % 64, 0u);
          EXPECT_EQ(choice->threads.value_or(32) % 32, 0u);
          EXPECT_LE(choice->threads.value_or(32), ranks == 2 || ranks == 4 ? 512u : 256u);
        }
      });
    }
  }
}

TEST(CandidateChoices, AreRowsOfATableThatTheSelectorFollows) {
  for (const Backend backend : kBackends) {
    for (const int ranks : {2, 3, 4, 8}) {
      for_each_class(backend, [&](Collective collective, TypeClass types, Buffers buffers) {
        for (const auto& choice : candidate_choices(backend, collective, ranks, types, buffers)) {
          const Tuning own = own_table({.collective = collective,
                                        .backend = backend,
                                        .ranks = ranks,
                                        .types = types,
                                        .buffers = buffers,
                                        .choice = choice});
          ASSERT_EQ(Tuning::from_json(own.to_json()), own);
          const Selector selector(own, backend, ranks, Links::nvlink);
          for (const std::uint64_t bytes : kSizes) {
            const auto& selection = selector.select(call_of(collective, type_of(types), buffers), bytes, {});
            if (choice) {
              ASSERT_EQ(selection.choice, *choice);
            }
            ASSERT_TRUE(selection.algorithm->carries(collective, types, buffers));
          }
        }
      });
    }
  }
}

TEST(HostChunk, FitsTheStagingAreaAndEveryElementSize) {
  for (const std::size_t staging :
       {64 * kKiB, 65 * kKiB + 1, 100 * kKiB + 63, kMiB, 10 * kMiB, std::uint64_t{1} << 34}) {
    const host::StagingLayout layout(staging);
    for (int ranks = 2; ranks <= kMaxHostRanks; ++ranks) {
      std::vector<std::optional<std::size_t>> chosen_chunks{std::nullopt};
      for (const auto& choice :
           candidate_choices(Backend::host, all_reduce, ranks, TypeClass::any, Buffers::any)) {
        if (choice) chosen_chunks.push_back(choice->chunk);
      }
      ASSERT_THAT(chosen_chunks, SizeIs(9));
      for (const Algorithm kind : kKinds) {
        for (const std::optional<std::size_t>& wanted : chosen_chunks) {
          const std::size_t chunk = host::chunk_of(kind, wanted, staging, ranks);
          ASSERT_TRUE(chunk > 0 && chunk % 64 == 0) << chunk;
          ASSERT_LE(chunk, wanted.value_or(chunk));
          const std::size_t part = host::Part(chunk, ranks, 0).bytes;
          for (const std::uint64_t step : {0, 1, 2, 3, 30, 31, 32, 33, 126, 127, 255}) {
            const std::uint64_t odd = step % 2;
            const std::size_t input = layout.input_offset(step, chunk);
            ASSERT_GE(input, odd * layout.input_bytes);
            ASSERT_LE(input + chunk, (odd + 1) * layout.input_bytes);
            if (kind == Algorithm::one_shot) continue;
            const std::size_t result = layout.result_offset(step, part) - 2 * layout.input_bytes;
            ASSERT_GE(result, odd * layout.result_bytes);
            ASSERT_LE(result + part, (odd + 1) * layout.result_bytes);
          }
          ASSERT_LE(2 * (layout.input_bytes + layout.result_bytes), staging);
        }
      }
    }
  }
}

TEST(HostStaging, SlotsOfAParityFollowEachOtherThroughTheRotation) {
  const host::StagingLayout layout(10 * kMiB);
  constexpr std::uint64_t kSlots = host::kRotation / (64 * kKiB);
  std::set<std::size_t> places;
  for (std::uint64_t i = 0; i < kSlots; ++i) places.insert(layout.input_offset(2 * i, 60 * kKiB));
  EXPECT_THAT(places, SizeIs(kSlots));
  EXPECT_EQ(*places.rbegin() - *places.begin(), host::kRotation - 64 * kKiB);
  EXPECT_EQ(layout.input_offset(2 * kSlots, 60 * kKiB), layout.input_offset(0, 60 * kKiB));
}

TEST(HostChunk, IsTheChosenOneWhereItFits) {
  EXPECT_EQ(host::chunk_of(Algorithm::one_shot, {}, 10 * kMiB, 2), 128 * kKiB);
  EXPECT_EQ(host::chunk_of(Algorithm::two_shot, {}, 10 * kMiB, 2), 256 * kKiB);
  EXPECT_EQ(host::chunk_of(Algorithm::one_shot, 512 * kKiB, 10 * kMiB, 2), 512 * kKiB);
  EXPECT_EQ(host::chunk_of(Algorithm::two_shot, 64 * kKiB, 10 * kMiB, 2), 64 * kKiB);
  EXPECT_EQ(host::chunk_of(Algorithm::one_shot, 512 * kKiB, 64 * kKiB, 2), 24 * kKiB);
}

TEST(HostPart, CoversTheChunkInWholeLinesInRankOrder) {
  for (int ranks = 2; ranks <= kMaxHostRanks; ++ranks) {
    for (std::size_t bytes = 0; bytes < 10000; bytes += bytes < 300 ? 1 : 97) {
      std::size_t next = 0;
      for (int r = 0; r < ranks; ++r) {
        const host::Part part(bytes, ranks, r);
        ASSERT_EQ(part.offset, next);
        ASSERT_TRUE(part.offset % 64 == 0 || part.bytes == 0);
        next += part.bytes;
      }
      ASSERT_EQ(next, bytes);
    }
  }
}

}  // namespace
}  // namespace onehop
