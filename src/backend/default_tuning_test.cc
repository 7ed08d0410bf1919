// SPDX-License-Identifier: Apache-2.0
// The library's own tables, and the choices that a table may name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "onehop/call.h"

#include "backend/cuda/algorithm.h"
#include "backend/selector_testing.h"

namespace onehop::choices {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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
        const bool streams = row.choice->algorithm == "streaming_exchange" && ranks > 2;
        EXPECT_EQ(row.derived, links == Links::pcie || streams || (ranks != 2 && ranks != 4));
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
  EXPECT_THAT(names(all_reduce, TypeClass::floats, Buffers::symmetric),
              ElementsAre("ll_one_shot", "lamport_one_shot", "lamport_two_shot_by_peer", "lamport_two_shot",
                          "streaming_one_shot", "streaming_two_shot", "copy_engine_two_shot"));
  EXPECT_THAT(names(all_reduce, TypeClass::any, Buffers::any),
              ElementsAre("ll_one_shot", "streaming_one_shot", "streaming_two_shot"));
  EXPECT_THAT(names(reduce_scatter, TypeClass::floats, Buffers::any),
              ElementsAre("ll_one_shot", "lamport_one_shot", "streaming_one_shot", "reduce_from_peers"));
  EXPECT_THAT(names(reduce, TypeClass::any, Buffers::symmetric),
              ElementsAre("ll_one_shot", "streaming_one_shot", "streaming_two_shot", "reduce_from_peers"));
  EXPECT_THAT(names(broadcast, TypeClass::any, Buffers::symmetric),
              ElementsAre("point_to_point", "streaming_one_way", "scatter_all_gather", "copy_engine"));
  for (const Collective collective : {all_gather, all_to_all}) {
    EXPECT_THAT(names(collective, TypeClass::any, Buffers::symmetric),
                ElementsAre("point_to_point", "streaming_exchange", "copy_engine"));
    EXPECT_THAT(names(collective, TypeClass::any, Buffers::any),
                ElementsAre("point_to_point", "streaming_exchange"));
  }
  for (const Collective collective : {gather, scatter}) {
    EXPECT_THAT(names(collective, TypeClass::any, Buffers::symmetric),
                ElementsAre("point_to_point", "streaming_one_way", "copy_engine"));
    EXPECT_THAT(names(collective, TypeClass::any, Buffers::any),
                ElementsAre("point_to_point", "streaming_one_way"));
  }
  for (const Collective collective : {all_to_all_v, send, recv, barrier})
    EXPECT_THAT(names(collective, TypeClass::floats, Buffers::symmetric), IsEmpty());
  EXPECT_THAT(algorithm_names(Backend::host, all_reduce), ElementsAre("one_shot", "two_shot"));
  EXPECT_THAT(algorithm_names(Backend::host, all_gather), IsEmpty());
}

TEST(Algorithms, OfGpusAreThoseThatCanRun) {
  const std::vector<const AlgorithmTraits*> traits = algorithms(Backend::cuda);
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

}  // namespace
}  // namespace onehop::choices
