// SPDX-License-Identifier: Apache-2.0
// The contract of all_reduce (collectives.h), on every backend and every number of ranks: exact bits for
// every type, op, size, alignment and placement, nothing else written, and identical results from call to
// call.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "onehop/tuning.h"

#include "backend/cuda/algorithms/push/push.h"
#include "backend/host/chunk.h"
#include "conformance/suite.h"

namespace onehop::testing {
namespace {

/// Counts at the limits of tables, launches and chunks, and one element to either side.
std::vector<std::size_t> boundary_counts(const Backend& backend, int ranks, DType type,
                                         std::size_t staging_bytes, std::size_t max_bytes) {
  const std::size_t element = size_of(type);
  if (ranks == 1) return {max_bytes / element - 1, max_bytes / element};  // one rank copies its input
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::size_t> bytes = table_limits(backend, Collective::all_reduce, ranks);
  std::vector<std::size_t> steps;  // what a launch, or a step of the host, moves
  if (backend.on_gpus) {
    // Where launches of either algorithm gain threads, blocks, and threads per block.
    for (const std::size_t packets : {32, 256, 512, 256 * 64}) {
      bytes.push_back(packets * 8);
      bytes.push_back(packets * 16 * n);
    }
    constexpr std::size_t kSmallestChunk = 512;  // of a piece
    const std::size_t lamport = staging_bytes / (512 * n) * (512 * n);
    steps = {cuda::kLLSlotBytes, 2 * lamport / n, lamport, kSmallestChunk * n};
  } else {
    bytes.push_back(host::kMinZeroCopyBytes);
    for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot})
      steps.push_back(host::chunk_of(algorithm, {}, staging_bytes, ranks));
  }
  for (const std::size_t step : steps) {
    for (const std::size_t times : {1, 2, 3}) bytes.push_back(times * step);
    bytes.push_back(step + 64 * n);
  }
  std::vector<std::size_t> counts;
  for (const std::size_t each : bytes) {
    for (const std::size_t count : {each / element - 1, each / element, each / element + 1}) {
      if (count * element <= max_bytes) counts.push_back(count);
    }
  }
  return counts;
}

class AllReduce : public CollectiveTest {};
class AllReduceOfSeveral : public AllReduce {};
class AllReduceOnGpus : public AllReduce {};

TEST_P(AllReduce, GivesTheExactBitsOfEveryTypeAndOpAtEverySize) {
  std::mt19937_64 random(seed());
  std::vector<CollectiveCase> cases;
  std::size_t n = 0;
  for (int type = 0; type < kDTypeCount; ++type) {
    for (const Reduction& how : reductions_of(static_cast<DType>(type))) {
      for (const std::size_t count : small_counts()) {
        if (n++ % kThin != 0) continue;
        CollectiveCase each = random_all_reduce(random);
        each.type = static_cast<DType>(type);
        each.set(how);
        each.count = count;
        cases.push_back(each);
      }
    }
  }
  run(cases, AllStreams(ranks()), kDefaultScratch);
}

TEST_P(AllReduce, CrossesEveryLimitOfTheTableWithEveryPlacement) {
  std::mt19937_64 random(seed());
  std::vector<CollectiveCase> cases;
  std::size_t n = 0;
  for (const auto& [type, op] : {std::pair{DType::bf16, ReduceOp::sum}, std::pair{DType::u8, ReduceOp::max},
                                 std::pair{DType::f64, ReduceOp::avg}}) {
    for (const std::size_t count : boundary_counts(backend(), ranks(), type, kSmallScratch,
                                                   backend().on_gpus ? 800 << 10 : 160 << 10)) {
      for (int placement = 0; placement < kPlacementCount; ++placement) {
        for (const bool in_place : {false, true}) {
          // The number of cases per placement is coprime to this, so that every combination is tested
          // eventually.
          if (n++ % (3 * kThin) != 0) continue;
          CollectiveCase each = random_all_reduce(random);
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
  run(cases, AllStreams(ranks(), {DType::bf16, DType::u8, DType::f64}), kSmallScratch);
}

TEST_P(AllReduce, ForcesEachAlgorithmOnEachPlacementInChunksOfASmallStagingBuffer) {
  std::mt19937_64 random(seed());
  std::vector<CollectiveCase> cases;
  for (int placement = 0; placement < kPlacementCount; ++placement) {
    for (const bool in_place : {false, true}) {
      for (const std::optional<Algorithm> algorithm : kAlgorithms) {
        CollectiveCase each = random_all_reduce(random);
        each.type = DType::f32;
        each.count = kSanitized ? 20011 : 50021;  // primes, of many chunks
        each.placement = static_cast<Placement>(placement);
        each.in_place = in_place;
        each.algorithm = algorithm;
        cases.push_back(each);
      }
    }
  }
  run(cases, AllStreams(ranks(), {DType::f32}), kSmallScratch);
}

TEST_P(AllReduce, CarriesMegabytesInTheDefaultStagingBuffer) {
  std::mt19937_64 random(seed());
  std::vector<CollectiveCase> cases;
  for (const DType type : {DType::f16, DType::f32, DType::i8}) {
    for (const std::size_t bytes : {std::size_t{300} << 10, std::size_t{kSanitized ? 1 : 3} << 20}) {
      CollectiveCase each = random_all_reduce(random);
      each.type = type;
      each.count = bytes / size_of(type) - 7;
      for (const Placement placement :
           {Placement::ordinary, Placement::symmetric, Placement::even_ranks_only}) {
        each.placement = placement;
        each.in_place = !each.in_place;
        cases.push_back(each);
        if (kSanitized) break;
      }
    }
  }
  run(cases, AllStreams(ranks(), {DType::f16, DType::f32, DType::i8}), kDefaultScratch);
}

TEST_P(AllReduceOfSeveral, UsesEveryAlgorithmATuningTableCanName) {
  const onehop::Backend kind = kind_of(backend());
  std::vector<TunedCases> all;
  for (const TypeClass types : {TypeClass::floats, TypeClass::any}) {
    const auto of_class =
        types == TypeClass::floats ? std::array{DType::bf16, DType::f64} : std::array{DType::u8, DType::i32};
    const auto candidates = [&](Buffers buffers) {
      return candidate_choices(kind, onehop::Collective::all_reduce, ranks(), types, buffers);
    };
    const auto for_any_buffers = candidates(Buffers::any);
    const auto choices = candidates(Buffers::symmetric);
    std::size_t n = 0;
    for (const auto& choice : choices) {
      // Every algorithm, and some of its launch shapes.
      if (n++ % (backend().on_gpus ? 3 : 3 * kThin) != 0 && choice != choices.back()) continue;
      const bool symmetric = std::ranges::find(for_any_buffers, choice) == for_any_buffers.end();
      std::mt19937_64 random(seed());
      TunedCases& tuned = all.emplace_back();
      tuned.row = {.backend = kind,
                   .ranks = ranks(),
                   .types = types,
                   .buffers = symmetric ? Buffers::symmetric : Buffers::any,
                   .choice = choice};
      for (const DType type : of_class) {
        for (const std::size_t bytes : {8u, 1000u, 66'000u, 999'992u}) {
          CollectiveCase each = random_all_reduce(random);
          each.algorithm = std::nullopt;
          each.type = type;
          each.op = bytes % 3 == 0 ? ReduceOp::max : ReduceOp::sum;
          each.count = bytes / size_of(type);
          each.symmetric = symmetric;
          if (symmetric) each.placement = Placement::symmetric;
          tuned.cases.push_back(each);
        }
      }
    }
  }
  run(all, AllStreams(ranks()));
}

/// Makes GPUs use copy engines if the output is declared symmetric memory. The library's own table does so with 2 ranks.
TuningRow by_copy_engines(int ranks) {
  return {.backend = onehop::Backend::cuda,
          .ranks = std::max(ranks, 2),
          .buffers = Buffers::symmetric,
          .choice = AlgorithmChoice{.algorithm = "copy_engine_two_shot"}};
}

/// On GPUs copy engines write into the outputs and read from them. Kernels do the remainder, small messages
/// and calls in place.
TEST_P(AllReduce, BringsLongMessagesStraightToSymmetricMemory) {
  const std::size_t bytes = long_block(backend(), Collective::all_reduce, ranks());
  CollectiveCase simple;
  simple.symmetric = true;
  simple.placement = Placement::symmetric;
  simple.type = DType::bf16;
  simple.count = bytes / size_of(simple.type);
  CollectiveCase left_over = simple;
  left_over.placement = Placement::symmetric_output;
  left_over.type = DType::f32;
  left_over.op = ReduceOp::avg;
  left_over.count = bytes / size_of(left_over.type) + 70'001;
  left_over.start = 17;
  left_over.shift = 4;  // to a multiple of 16 bytes
  CollectiveCase of_integers = simple;
  of_integers.placement = Placement::sub_buffers;
  of_integers.type = DType::i32;
  of_integers.op = ReduceOp::max;
  of_integers.count = bytes / size_of(of_integers.type) + 1;
  CollectiveCase in_place = of_integers;
  in_place.in_place = true;
  CollectiveCase misaligned = of_integers;
  misaligned.shift = 1;
  CollectiveCase small = left_over;
  small.count = 1021;
  run({{.row = by_copy_engines(ranks()),
        .cases = {simple, small, left_over, in_place, small, of_integers, misaligned, simple}}},
      AllStreams(ranks(), {DType::bf16, DType::f32, DType::i32}));
}

// On GPUs only: host ranks do not need the promise.
TEST_P(AllReduceOnGpus, FailsOnAllRanksIfSymmetricMemoryIsPromisedAndOneAloneIsInPlace) {
  const TempDir folder;
  JoinOptions options;
  options.timeout = std::chrono::seconds{5};
  options.tuning = fmt::format("{}/tuning.json", folder.path());
  std::ofstream(options.tuning) << Tuning{.device = "", .rows = {by_copy_engines(ranks())}}.to_json();
  backend().run(ranks(), options, [&](Group& group) {
    const std::unique_ptr<RankMemory> memory = backend().memory(group);
    const std::size_t bytes = long_block(backend(), Collective::all_reduce, ranks());
    const SymmetricBuffer shared = group.allocate(bytes);
    std::byte* const own = memory->allocate(bytes);
    group.barrier();  // some ranks share a GPU: wait until no rank allocates any more
    try {
      const std::byte* const in = group.rank().value == 1 ? shared.local() : own;
      (void)all_reduce(group, in, shared.local(), bytes, DType::u8, ReduceOp::sum, memory->stream(),
                       {.algorithm = {}, .timeout = {}, .symmetric = true});
      group.synchronize(memory->stream());
      ADD_FAILURE() << "nothing failed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
      EXPECT_THAT(error.what(), ::testing::HasSubstr("one of them is in place"));
    }
    memory->release(own);
  });
}

TEST_P(AllReduce, TreatsSpecialValuesAsTheContractSays) {
  struct Special {
    DType type;
    Reduction how;
    std::vector<Bytes> inputs;  ///< per rank
    Bytes expected;
  };
  // Ranks 0 and 1 combine every pair of values (for 1-byte types, every third pair); the other ranks have the
  // values that follow in the list.
  std::vector<Special> specials;
  for (int t = 0; t < kDTypeCount; ++t) {
    const auto type = static_cast<DType>(t);
    const std::size_t element = size_of(type);
    const Bytes values = special_elements(type);
    const std::size_t count = values.size() / element;
    std::vector<Bytes> inputs(static_cast<std::size_t>(ranks()));
    for (std::size_t pair = 0; pair<count * count; pair += count> 200 ? 3 * kThin : 1) {
      const std::size_t choices[] = {pair / count, pair % count};
      for (std::size_t r = 0; r < inputs.size(); ++r) {
        const std::size_t index = r < 2 ? choices[r] : (choices[0] + r * choices[1]) % count;
        const auto at = values.begin() + static_cast<std::ptrdiff_t>(index * element);
        inputs[r].insert(inputs[r].end(), at, at + static_cast<std::ptrdiff_t>(element));
      }
    }
    for (const Reduction& how : reductions_of(type)) {
      specials.push_back({type, how, inputs, reduced(type, how, inputs)});
    }
  }
  std::size_t most = 0;
  for (const Special& each : specials) most = std::max(most, each.expected.size());
  backend().run(ranks(), {}, [&](Group& group) {
    const std::unique_ptr<RankMemory> memory = backend().memory(group);
    const OwnFactor factor(*memory, group.rank());
    std::byte* const data = memory->allocate(most);
    for (const Special& each : specials) {
      const Bytes& input = each.inputs[static_cast<std::size_t>(group.rank().value)];
      for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
        const std::size_t count = input.size() / size_of(each.type);
        memory->upload(data, input.data(), input.size());
        CallOptions options = factor.options(each.type, each.how, algorithm == Algorithm::one_shot);
        options.algorithm = algorithm;
        (void)all_reduce(group, data, data, count, each.type, each.how.op, memory->stream(), options);
        group.synchronize(memory->stream());
        Bytes output(input.size());
        memory->download(output.data(), data, output.size());
        for (std::size_t i = 0; i < count; ++i) {
          const std::string expected = element_text(each.type, each.expected.data(), i);
          if (std::equal(output.begin(), output.end(), each.expected.begin())) break;
          std::string inputs;
          for (const Bytes& of_rank : each.inputs) inputs += element_text(each.type, of_rank.data(), i) + " ";
          ASSERT_EQ(element_text(each.type, output.data(), i), expected)
              << to_string(each.type) << " " << to_string(each.how.op) << " (factor " << each.how.factor
              << ") of " << inputs << to_string(algorithm);
        }
      }
    }
    memory->release(data);
  });
}

/// Words of four equal values, since protocols without flags mark empty words by special bits. A rank has
/// each value in turn for a while, in messages of every protocol.
TEST_P(AllReduce, PassesWordsOfEveryFp8ValueInEveryProtocol) {
  constexpr std::size_t kRun = 16;  // bytes per value
  constexpr std::size_t kPeriod = 256 * kRun;
  const std::size_t longest = (backend().on_gpus ? 8 << 20 : 512 << 10) / (kSanitized ? 4 : 1);
  for (const DType type : {DType::e4m3, DType::e5m2}) {
    std::vector<Bytes> inputs(static_cast<std::size_t>(ranks()));
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      for (std::size_t i = 0; i < longest; ++i) {
        // In the first period all ranks have the same value, in later ones different values.
        inputs[r].push_back(static_cast<std::byte>(i / kRun + i / kPeriod * r));
      }
    }
    const Bytes expected = reduced(type, {.op = ReduceOp::sum}, inputs);
    backend().run(ranks(), {}, [&](Group& group) {
      const std::unique_ptr<RankMemory> memory = backend().memory(group);
      std::byte* const data = memory->allocate(longest);
      const Bytes& input = inputs[static_cast<std::size_t>(group.rank().value)];
      for (const std::size_t bytes : {2 * kPeriod, 32 * kPeriod, longest}) {
        for (const std::optional<Algorithm> algorithm : kAlgorithms) {
          memory->upload(data, input.data(), bytes);
          (void)all_reduce(group, data, data, bytes, type, ReduceOp::sum, memory->stream(),
                           {.algorithm = algorithm, .timeout = {}});
          group.synchronize(memory->stream());
          Bytes output(bytes);
          memory->download(output.data(), data, bytes);
          const auto wrong = std::mismatch(output.begin(), output.end(), expected.begin()).first;
          ASSERT_EQ(wrong - output.begin(), static_cast<std::ptrdiff_t>(bytes))
              << to_string(type) << ": byte " << wrong - output.begin() << " of " << bytes;
        }
      }
      memory->release(data);
    });
  }
}

/// Thousands of calls, back to back except for the ranks' work on their data and occasional delays. A rank
/// that is early must not disturb one that is late.
TEST_P(AllReduce, KeepsRanksInStepThroughRandomCallsBackToBack) {
  const int calls = (kSanitized ? 600 : 8000) / ranks();
  const AllStreams streams(ranks());
  JoinOptions options;
  options.scratch_bytes = kSmallScratch;
  backend().run(ranks(), options, [&](Group& group) {
    constexpr std::size_t kMaxBytes = 120 << 10;
    Workspace workspace(backend(), group, kMaxBytes);
    std::mt19937_64 together(seed());
    std::mt19937_64 alone(seed() + static_cast<std::uint64_t>(group.rank().value) + 1);
    for (int i = 0; i < calls; ++i) {
      CollectiveCase each = random_all_reduce(together);
      each.type = static_cast<DType>(together() % kDTypeCount);
      const std::vector<Reduction> reductions = reductions_of(each.type);
      each.set(reductions[together() % reductions.size()]);
      // Every order of magnitude is equally likely.
      const std::size_t limit = kMaxBytes >> together() % 17;
      each.count = together() % (limit / size_of(each.type) + 1);
      (void)workspace.run(each, streams[each.type]);
      const std::uint64_t dice = alone();
      if (dice % 16 == 0) std::this_thread::yield();
      if (dice % 128 == 1) std::this_thread::sleep_for(std::chrono::microseconds{dice / 128 % 500});
    }
  });
}

TEST_P(AllReduce, CountsEveryCompletedCallByItsAlgorithm) {
  backend().run(ranks(), {}, [&](Group& group) {
    const std::unique_ptr<RankMemory> memory = backend().memory(group);
    constexpr std::size_t kCount = 1000;
    const std::vector<float> ones(kCount, 1.0f);
    std::byte* const data = memory->allocate(kCount * sizeof(float));
    memory->upload(data, ones.data(), kCount * sizeof(float));
    const auto call = [&](std::optional<Algorithm> algorithm) {
      return all_reduce(group, data, data, kCount, DType::f32, ReduceOp::max, memory->stream(),
                        {.algorithm = algorithm, .timeout = {}});
    };
    EXPECT_THAT(group.usage(), ::testing::ElementsAre(0, 0, 0));
    for (int i = 0; i < 3; ++i) (void)call(Algorithm::one_shot);
    for (int i = 0; i < 5; ++i) (void)call(Algorithm::two_shot);
    EXPECT_THAT(group.usage(), ::testing::ElementsAre(0, 3, 5));
    EXPECT_THROW((void)call(Algorithm::none), Error);
    EXPECT_THAT(group.usage(), ::testing::ElementsAre(0, 3, 5));
    const Algorithm picked = call({});
    EXPECT_THAT(group.usage(), ::testing::ElementsAre(0, picked == Algorithm::one_shot ? 4 : 3,
                                                      picked == Algorithm::two_shot ? 6 : 5));
    group.synchronize(memory->stream());
    memory->release(data);
  });
}

TEST_P(AllReduce, RefusesAFactorThatTheTypeDoesNotHoldOnEveryRank) {
  backend().run(ranks(), {}, [&](Group& group) {
    const std::unique_ptr<RankMemory> memory = backend().memory(group);
    const Array<std::int32_t> data(*memory, 100, 1);
    const Array<std::int32_t> out(*memory, 100, 7);
    const auto call = [&](double factor) {
      (void)all_reduce(group, data.data(), out.data(), 100, DType::i32, ReduceOp::premul_sum,
                       memory->stream(), {.algorithm = {}, .timeout = {}, .factor = factor});
    };
    for (const double factor : {0.5, 0x1p31, std::nan("")}) {
      try {
        call(factor);
        ADD_FAILURE() << "accepted " << factor;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
        EXPECT_THAT(error.message(), ::testing::HasSubstr(fmt::format("i32, premul_sum, factor {}", factor)));
      }
    }
    group.synchronize(memory->stream());
    EXPECT_THAT(out.values(), ::testing::Each(7));
    call(-3);
    group.synchronize(memory->stream());
    EXPECT_THAT(out.values(), ::testing::Each(-3 * group.size()));
  });
}

// On GPUs, ranks compare calls only if ONEHOP_CHECK is set; otherwise waits time out (tests/fault).
TEST_P(AllReduce, RejectsCallsThatDifferOnEveryRankAndTheGroupStaysUsable) {
  const ScopedVariable check("ONEHOP_CHECK", "1");
  backend().run(ranks(), {}, [&](Group& group) {
    const std::unique_ptr<RankMemory> memory = backend().memory(group);
    const bool odd_one = group.rank().value == group.size() - 1;
    const Array<double> data(*memory, 100, 1.0);
    const Array<double> out(*memory, 100, 7.0);
    const Array<std::int64_t> ones(*memory, 10, 1);
    std::int64_t expected = 1;
    const auto expect_rejected = [&](ErrorCode code, const std::string& text, auto&& call) {
      if (code == ErrorCode::mismatch && group.size() == 1) return;  // no other rank to differ from
      try {
        call();
        ADD_FAILURE() << "accepted; expected: " << text;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        EXPECT_EQ(error.origin(), Rank{group.size() - 1}) << error.what();
        EXPECT_THAT(error.message(), ::testing::HasSubstr(text));
      }
      group.synchronize(memory->stream());
      EXPECT_THAT(out.values(), ::testing::Each(7.0)) << text;
      // The ranks are still in step.
      (void)all_reduce(group, ones.data(), ones.data(), 10, DType::i64, ReduceOp::sum, memory->stream());
      group.synchronize(memory->stream());
      expected *= group.size();
      EXPECT_THAT(ones.values(), ::testing::Each(expected)) << text;
    };
    const auto call = [&](std::size_t count, DType type, ReduceOp op, const CallOptions& options = {}) {
      (void)all_reduce(group, data.data(), out.data(), count, type, op, memory->stream(), options);
    };
    const int last = group.size() - 1;
    expect_rejected(ErrorCode::mismatch, "count 99",
                    [&] { call(odd_one ? 99 : 100, DType::f32, ReduceOp::sum); });
    expect_rejected(ErrorCode::mismatch, "count 0",
                    [&] { call(odd_one ? 0 : 100, DType::f32, ReduceOp::sum); });
    expect_rejected(ErrorCode::mismatch, "i32",
                    [&] { call(100, odd_one ? DType::i32 : DType::f32, ReduceOp::sum); });
    expect_rejected(ErrorCode::mismatch, "prod",
                    [&] { call(100, DType::f32, odd_one ? ReduceOp::prod : ReduceOp::sum); });
    expect_rejected(ErrorCode::mismatch, "two-shot", [&] {
      call(100, DType::f32, ReduceOp::sum,
           {.algorithm = odd_one ? Algorithm::two_shot : Algorithm::one_shot, .timeout = {}});
    });
    expect_rejected(ErrorCode::mismatch, "factor 0.5", [&] {
      call(100, DType::f32, ReduceOp::premul_sum,
           {.algorithm = {}, .timeout = {}, .factor = odd_one ? 0.5 : 0.25});
    });
    expect_rejected(ErrorCode::mismatch, "barrier()", [&] {
      if (odd_one) {
        group.barrier();
      } else {
        call(100, DType::f32, ReduceOp::sum);
      }
    });
    expect_rejected(ErrorCode::invalid_argument, fmt::format("rank {}", last),
                    [&] { call(100, odd_one ? static_cast<DType>(77) : DType::f32, ReduceOp::sum); });
    expect_rejected(ErrorCode::invalid_argument, "only premul_sum", [&] {
      call(100, DType::f32, ReduceOp::sum, {.algorithm = {}, .timeout = {}, .factor = odd_one ? 0.5 : 1});
    });
    const auto pointers = [&](const void* in, void* to, std::size_t count) {
      (void)all_reduce(group, in, to, count, DType::f64, ReduceOp::sum, memory->stream());
    };
    expect_rejected(ErrorCode::invalid_argument, "null",
                    [&] { pointers(odd_one ? nullptr : data.data(), out.data(), 1); });
    expect_rejected(ErrorCode::invalid_argument, "aligned", [&] {
      const auto* const in = reinterpret_cast<const std::byte*>(data.data());
      pointers(odd_one ? in + 4 : in, out.data(), 1);
    });
    expect_rejected(ErrorCode::invalid_argument, "overlap",
                    [&] { pointers(odd_one ? out.data() + 1 : data.data(), out.data(), 9); });
    expect_rejected(ErrorCode::invalid_argument, "too large",
                    [&] { pointers(data.data(), out.data(), odd_one ? SIZE_MAX : 9); });
  });
}

INSTANTIATE_TEST_SUITE_P(, AllReduce, ::testing::ValuesIn(parameters(&Backend::sizes)), name_of);
INSTANTIATE_TEST_SUITE_P(, AllReduceOfSeveral, ::testing::ValuesIn(parameters(&Backend::sizes, kSeveral)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(, AllReduceOnGpus, ::testing::ValuesIn(gpu_parameters()), name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AllReduceOnGpus);

}  // namespace
}  // namespace onehop::testing
