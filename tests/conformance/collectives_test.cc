// SPDX-License-Identifier: Apache-2.0
// The contract of the collectives other than all_reduce (collectives.h), on every number of ranks. The right
// bytes arrive on the right ranks, and nothing else is written.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "backend/host/chunk.h"
#include "backend/host/exchange.h"
#include "conformance/suite.h"

namespace onehop::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Collective kCollectives[] = {
    Collective::all_gather, Collective::reduce_scatter, Collective::broadcast, Collective::reduce,
    Collective::all_to_all, Collective::all_to_all_v,   Collective::gather,    Collective::scatter};

class Collectives : public CollectiveTest {
 protected:
  /// A case with everything but type, op and count drawn at random.
  [[nodiscard]] CollectiveCase random_case(Collective collective, std::mt19937_64& random) const {
    CollectiveCase result;
    result.collective = collective;
    result.root = Rank{static_cast<int>(random() % static_cast<std::uint64_t>(ranks()))};
    if (traits_of(collective).has_two_shot && random() % 3 != 0)
      result.algorithm = random() % 2 == 0 ? Algorithm::one_shot : Algorithm::two_shot;
    result.placement = static_cast<Placement>(random() % kPlacementCount);
    result.in_place = random() % 2 == 0;
    result.shift = random() % 3 == 0 ? 0 : random() % 64;
    result.start = random() % Streams::kPeriod;
    return result;
  }

  /// Counts at which another step is needed, and counts around the limits of zero-copy and of the tables.
  [[nodiscard]] std::vector<std::size_t> boundary_counts(Collective collective, std::size_t element) const {
    const host::StagingLayout layout(kSmallScratch);
    const auto n = static_cast<std::size_t>(ranks());
    // The number of blocks that a rank has for others, and how many bytes of each it passes per step.
    const bool one_each = collective == Collective::all_to_all || collective == Collective::scatter ||
                          collective == Collective::reduce_scatter;
    const std::size_t blocks = one_each && n > 1 ? n - 1 : 1;
    const std::size_t step = collective == Collective::reduce_scatter
                                 ? std::min(host::kReduceScatterChunk, layout.input_bytes) / n / 64 * 64
                                 : std::min(host::kExchangeChunk, layout.input_bytes) / blocks;
    std::vector<std::size_t> sizes = {step,
                                      2 * step,
                                      3 * step + step / 2,
                                      host::kMinSharedBytes / blocks,
                                      host::kMinSharedBytes,
                                      host::kMinPulledBytes / blocks,
                                      host::kMinPulledBytes,
                                      host::kMinZeroCopyBytes / blocks,
                                      host::kMinZeroCopyBytes,
                                      2 * host::kMinPulledBytes};
    constexpr std::size_t kMost = 512 << 10;
    for (const std::size_t limit : table_limits(backend(), collective, ranks())) {
      if (limit <= kMost) sizes.push_back(limit);
    }
    std::vector<std::size_t> counts;
    for (const std::size_t bytes : sizes) {
      for (const std::size_t count : {bytes / element - 1, bytes / element, bytes / element + 1})
        counts.push_back(count);
    }
    return counts;
  }

  /// A block size that copy engines transfer where they may.
  [[nodiscard]] std::size_t long_block() const {
    return testing::long_block(backend(), Collective::all_to_all, ranks());
  }

  /// The error of an all_to_all that promises symmetric memory.
  [[nodiscard]] Error failure_of(Group& group, const RankMemory& memory, const std::byte* in,
                                 std::byte* out) const {
    CallOptions options;
    options.symmetric = true;
    try {
      (void)all_to_all(group, in, out, long_block(), DType::u8, memory.stream(), options);
      group.synchronize(memory.stream());
    } catch (const Error& error) {
      return error;
    }
    return {ErrorCode::system, "nothing failed"};
  }
};
class CollectivesOnGpus : public Collectives {};
class CollectivesOfSeveral : public Collectives {};

TEST_P(Collectives, GiveEveryRankWhatItIsDueAtEverySizeOfEveryType) {
  std::mt19937_64 random(seed());
  std::vector<CollectiveCase> cases;
  std::size_t n = 0;
  for (const Collective collective : kCollectives) {
    for (int type = 0; type < kDTypeCount; ++type) {
      std::vector<Reduction> reductions(1);
      if (traits_of(collective).reduces) reductions = reductions_of(static_cast<DType>(type));
      for (const Reduction& how : reductions) {
        for (const std::size_t count : small_counts()) {
          if (n++ % kThin != 0) continue;
          CollectiveCase each = random_case(collective, random);
          each.type = static_cast<DType>(type);
          each.set(how);
          each.count = count;
          cases.push_back(each);
        }
      }
    }
  }
  run(cases, AllStreams(ranks()), kDefaultScratch);
}

TEST_P(Collectives, WorkFromAndToEveryRoot) {
  std::mt19937_64 random(seed());
  std::vector<CollectiveCase> cases;
  for (const Collective collective :
       {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter}) {
    for (int root = 0; root < ranks(); ++root) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{1021}, std::size_t{20011}}) {
        for (const bool in_place : {false, true}) {
          CollectiveCase each = random_case(collective, random);
          each.type = DType::i32;
          each.count = count;
          each.root = Rank{root};
          each.in_place = in_place;
          cases.push_back(each);
        }
      }
    }
  }
  run(cases, AllStreams(ranks(), {DType::i32}), kSmallScratch);
}

TEST_P(Collectives, CrossEveryLimitWithEveryPlacement) {
  std::mt19937_64 random(seed());
  std::vector<CollectiveCase> cases;
  std::size_t n = 0;
  for (const Collective collective : kCollectives) {
    for (const auto& [type, op] :
         {std::pair{DType::bf16, ReduceOp::sum}, std::pair{DType::f64, ReduceOp::avg}}) {
      for (const std::size_t count : boundary_counts(collective, size_of(type))) {
        for (int placement = 0; placement < kPlacementCount; ++placement) {
          for (const bool in_place : {false, true}) {
            // The number of cases per placement is coprime to this, so that every combination is tested
            // eventually.
            if (n++ % (5 * kThin) != 0) continue;
            CollectiveCase each = random_case(collective, random);
            each.type = type;
            each.op = op;
            each.count = count;
            each.placement = static_cast<Placement>(placement);
            each.in_place = in_place;
            cases.push_back(each);
          }
        }
      }
    }
  }
  run(cases, AllStreams(ranks(), {DType::bf16, DType::f64}), kSmallScratch);
}

TEST_P(Collectives, CarryMegabytesInTheDefaultStagingBuffer) {
  std::mt19937_64 random(seed());
  std::vector<CollectiveCase> cases;
  for (const Collective collective : kCollectives) {
    for (const Placement placement : {Placement::ordinary, Placement::symmetric, Placement::displaced}) {
      CollectiveCase each = random_case(collective, random);
      each.type = DType::f32;
      each.count =
          (std::size_t{kSanitized ? 1 : 2} << 20) / sizeof(float) / static_cast<std::size_t>(ranks()) - 7;
      each.placement = placement;
      cases.push_back(each);
    }
  }
  run(cases, AllStreams(ranks(), {DType::f32}), kDefaultScratch);
}

/// On GPUs everything that is not short passes through rings of slots; this fills each slot several times.
// On GPUs only: host ranks pass megabytes in many steps already.
TEST_P(CollectivesOnGpus, CarryMoreThanAllSlotsHold) {
  std::mt19937_64 random(seed());
  std::vector<CollectiveCase> cases;
  for (const Collective collective : kCollectives) {
    for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
      // 4 MiB: the longest reduce that runs as an all-reduce.
      for (const std::size_t bytes :
           {std::size_t{300} << 10, (std::size_t{4} << 20) - 16, std::size_t{40} << 20}) {
        CollectiveCase each = random_case(collective, random);
        each.type = shift == 0 ? DType::i32 : DType::bf16;
        const bool whole = collective == Collective::broadcast || collective == Collective::reduce;
        const std::size_t others = std::max(1, ranks() - 1);
        each.count = bytes / (whole ? 1 : others) / size_of(each.type) + 3;
        each.shift = shift;
        each.placement = Placement::ordinary;
        cases.push_back(each);
      }
    }
  }
  run(cases, AllStreams(ranks(), {DType::i32, DType::bf16}), kDefaultScratch);
}

TEST_P(CollectivesOfSeveral, UseEveryAlgorithmATuningTableCanName) {
  const onehop::Backend kind = kind_of(backend());
  const std::vector<onehop::Collective> tunable = tunable_collectives(kind);
  std::vector<TunedCases> all;
  for (const Collective collective : kCollectives) {
    if (std::ranges::find(tunable, in_tables(collective)) == tunable.end()) continue;
    for (const TypeClass types : {TypeClass::floats, TypeClass::any}) {
      const DType type = types == TypeClass::floats ? DType::f16 : DType::i32;
      const auto choices = candidate_choices(kind, in_tables(collective), ranks(), types, Buffers::symmetric);
      std::size_t n = 0;
      for (const auto& choice : choices) {
        // Every algorithm, and some of its launch shapes.
        const bool shaped = choice && (choice->blocks || choice->threads || choice->chunk);
        if (shaped && n++ % (5 * kThin) != 0) continue;
        std::mt19937_64 random(seed());
        TunedCases& tuned = all.emplace_back();
        tuned.row = {.collective = in_tables(collective),
                     .backend = kind,
                     .ranks = ranks(),
                     .types = types,
                     .buffers = Buffers::symmetric,
                     .choice = choice};
        for (const std::size_t bytes : {8u, 1000u, 66'000u, 999'992u}) {
          CollectiveCase each = random_case(collective, random);
          each.algorithm = std::nullopt;
          each.type = type;
          each.count = bytes / size_of(type) / (bytes > 66'000 ? static_cast<std::size_t>(ranks()) : 1);
          each.symmetric = true;
          each.placement = Placement::symmetric;
          each.in_place = each.in_place && collective != Collective::scatter;
          tuned.cases.push_back(each);
        }
      }
    }
  }
  run(all, AllStreams(ranks(), {DType::f16, DType::i32}));
}

/// On GPUs by copy engines, with a barrier before and after; kernels do the calls in between.
TEST_P(Collectives, BringLongBlocksStraightToSymmetricMemory) {
  std::mt19937_64 random(seed());
  std::vector<CollectiveCase> cases;
  for (const Collective collective : kCollectives) {
    for (const Placement placement :
         {Placement::symmetric, Placement::symmetric_output, Placement::sub_buffers}) {
      CollectiveCase each = random_case(collective, random);
      each.symmetric = true;
      // The root's output would be part of its input, and not where the others' outputs are.
      each.in_place = each.in_place && collective != Collective::scatter;
      each.type = random() % 2 == 0 ? DType::u8 : DType::f32;
      const bool carried = !traits_of(collective).reduces && collective != Collective::all_to_all_v;
      const std::size_t bytes = carried && random() % 4 != 0 ? long_block() : 0;
      each.count = (bytes + random() % 4096) / size_of(each.type);
      each.placement = placement;
      cases.push_back(each);
    }
  }
  run(cases, AllStreams(ranks(), {DType::u8, DType::f32}), kDefaultScratch);
}

// On GPUs only: host ranks do not need the promise.
TEST_P(CollectivesOnGpus, FailOnAllRanksIfSymmetricMemoryIsPromisedAndOrdinaryMemoryPassed) {
  JoinOptions options;
  options.timeout = std::chrono::seconds{5};
  backend().run(ranks(), options, [&](Group& group) {
    const std::unique_ptr<RankMemory> memory = backend().memory(group);
    const SymmetricBuffer shared = group.allocate(long_block() * static_cast<std::size_t>(ranks()));
    std::byte* const own = memory->allocate(2 * shared.bytes());
    const bool odd = group.rank().value == 1;
    const Error error = failure_of(group, *memory, own, odd ? own + shared.bytes() : shared.local());
    EXPECT_THAT(error.what(), AllOf(HasSubstr("of rank 1 was rejected"), HasSubstr("promises")));
    EXPECT_EQ(error.origin().value, 1);
    memory->release(own);
  });
}

// On GPUs only: host ranks do not need the promise.
TEST_P(CollectivesOnGpus, FailOnAllRanksIfSymmetricMemoryIsPromisedAndOnePassesAnotherOffset) {
  JoinOptions options;
  options.timeout = std::chrono::seconds{5};
  backend().run(ranks(), options, [&](Group& group) {
    const std::unique_ptr<RankMemory> memory = backend().memory(group);
    const std::size_t bytes = long_block() * static_cast<std::size_t>(ranks());
    const SymmetricBuffer shared = group.allocate(bytes + 64);
    std::byte* const own = memory->allocate(bytes);
    const Error error = failure_of(group, *memory, own, shared.local() + (group.rank().value == 1 ? 64 : 0));
    EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("different offsets"));
    memory->release(own);
  });
}

/// Thousands of calls of all kinds, back to back except for the ranks' work on their data and occasional
/// delays. A rank that is early must not disturb one that is late.
TEST_P(Collectives, KeepRanksInStepThroughRandomCallsOfAllKindsBackToBack) {
  const int calls = (kSanitized ? 800 : 30'000) / ranks();
  const AllStreams streams(ranks());
  JoinOptions options;
  options.scratch_bytes = kSmallScratch;
  backend().run(ranks(), options, [&](Group& group) {
    constexpr std::size_t kMaxBytes = 240 << 10;
    Workspace workspace(backend(), group, kMaxBytes);
    std::mt19937_64 together(seed());
    std::mt19937_64 alone(seed() + static_cast<std::uint64_t>(group.rank().value) + 1);
    for (int i = 0; i < calls; ++i) {
      CollectiveCase each = random_case(static_cast<Collective>(together() % kCollectivesOfData), together);
      each.type = static_cast<DType>(together() % kDTypeCount);
      const std::vector<Reduction> reductions = reductions_of(each.type);
      if (traits_of(each.collective).reduces) each.set(reductions[together() % reductions.size()]);
      // Every order of magnitude is equally likely.
      each.count = (together() % kMaxBytes >> together() % 18) / size_of(each.type);
      while (each.max_bytes(group.size()) > kMaxBytes) each.count /= 2;
      (void)workspace.run(each, streams[each.type]);
      if (together() % 16 == 0) group.barrier();
      const std::uint64_t dice = alone();
      if (dice % 16 == 0) std::this_thread::yield();
      if (dice % 128 == 1) std::this_thread::sleep_for(std::chrono::microseconds{dice / 128 % 500});
    }
  });
}

TEST_P(Collectives, AreCountedWhenTheyComplete) {
  backend().run(ranks(), {}, [&](Group& group) {
    Workspace workspace(backend(), group, 1 << 20);
    const Streams streams(ranks(), DType::f32, seed());
    std::uint64_t one_shots = 0;
    for (const Collective collective : kCollectives) {
      CollectiveCase each;
      each.collective = collective;
      each.count = 10;
      EXPECT_EQ(workspace.run(each, streams), Algorithm::one_shot);
      ++one_shots;
      each.algorithm = Algorithm::two_shot;
      if (!traits_of(collective).has_two_shot) {
        EXPECT_THROW((void)workspace.run(each, streams), Error);
      }
      EXPECT_THAT(group.usage(), ::testing::ElementsAre(0, one_shots, 0)) << traits_of(collective).name;
    }
    CollectiveCase large{.collective = Collective::reduce, .count = 200, .algorithm = Algorithm::two_shot};
    EXPECT_EQ(workspace.run(large, streams), Algorithm::two_shot);
    EXPECT_THAT(group.usage(), ::testing::ElementsAre(0, one_shots, 1));
  });
}

INSTANTIATE_TEST_SUITE_P(, Collectives, ::testing::ValuesIn(parameters(&Backend::sizes)), name_of);
INSTANTIATE_TEST_SUITE_P(, CollectivesOfSeveral,
                         ::testing::ValuesIn(parameters(&Backend::few_sizes, kSeveral)), name_of);
INSTANTIATE_TEST_SUITE_P(, CollectivesOnGpus, ::testing::ValuesIn(gpu_parameters()), name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CollectivesOnGpus);

}  // namespace
}  // namespace onehop::testing
