// The contract of all_reduce (collectives.h), on every backend and every number of ranks: exact bits for
// every type, op, size, alignment and placement, nothing else written, and the same from one call to the
// next.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "onehop/tuning.h"

#include "base/env.h"
#include "collective/plan.h"
#include "conformance/suite.h"

namespace onehop::testing {
namespace {

constexpr std::optional<Algorithm> kAlgorithms[] = {std::nullopt, Algorithm::one_shot, Algorithm::two_shot};

/// Counts at which something begins, ends or repeats: the plan's limits and chunks, and one element to either
/// side.
std::vector<std::size_t> boundary_counts(const Backend& backend, int ranks, DType type,
                                         std::size_t staging_bytes, std::size_t max_bytes) {
  const std::size_t element = size_of(type);
  const auto plan = [&](std::size_t bytes, std::optional<Algorithm> forced) -> Plan {
    const PlanRequest request{
        .ranks = ranks, .bytes = bytes, .type = type, .forced = forced, .staging_bytes = staging_bytes};
    if (!backend.on_gpus) return plan_all_reduce(request);
    const DevicePlan device = plan_device_all_reduce(request);
    return {.algorithm = device.algorithm,
            .chunk = device.protocol == DeviceProtocol::chunks
                         ? device.chunk * static_cast<std::size_t>(ranks)
                         : device.launch_bytes};
  };
  std::vector<std::size_t> bytes = {kMinZeroCopyBytes};
  if (backend.on_gpus) {
    // Where launches of either algorithm gain threads, blocks, and threads per block.
    for (const std::size_t packets : {32, 256, 512, 256 * 64}) {
      bytes.push_back(packets * 8);
      bytes.push_back(packets * 16 * static_cast<std::size_t>(ranks));
    }
  }
  // Where the default algorithm changes: it does so once.
  std::size_t low = 0;
  std::size_t high = max_bytes;
  while (low + 1 < high) {
    const std::size_t middle = (low + high) / 2;
    (plan(middle, {}).algorithm == plan(0, {}).algorithm ? low : high) = middle;
  }
  bytes.push_back(high);
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
    const std::size_t chunk = plan(max_bytes, algorithm).chunk;
    for (const std::size_t chunks : {1, 2, 3}) bytes.push_back(chunks * chunk);
    bytes.push_back(chunk + 64 * static_cast<std::size_t>(ranks));
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

/// A case with everything but type, op and count drawn at random.
CollectiveCase random_case(std::mt19937_64& random) {
  CollectiveCase result;
  result.algorithm = kAlgorithms[random() % std::size(kAlgorithms)];
  result.placement = static_cast<Placement>(random() % kPlacementCount);
  result.in_place = random() % 2 == 0;
  result.shift = random() % 3 == 0 ? 0 : random() % 64;
  result.start = random() % Streams::kPeriod;
  return result;
}

TEST_P(AllReduce, GivesTheExactBitsOfEveryTypeAndOpAtEverySize) {
  std::mt19937_64 random(seed());
  std::vector<CollectiveCase> cases;
  std::size_t n = 0;
  for (int type = 0; type < kDTypeCount; ++type) {
    for (const Reduction& how : reductions_of(static_cast<DType>(type))) {
      for (const std::size_t count : small_counts()) {
        if (n++ % kThin != 0) continue;
        CollectiveCase each = random_case(random);
        each.type = static_cast<DType>(type);
        each.set(how);
        each.count = count;
        cases.push_back(each);
      }
    }
  }
  run(cases, AllStreams(ranks()), kDefaultScratch);
}

TEST_P(AllReduce, CrossesEveryLimitOfThePlanWithEveryPlacement) {
  std::mt19937_64 random(seed());
  std::vector<CollectiveCase> cases;
  std::size_t n = 0;
  for (const auto& [type, op] : {std::pair{DType::bf16, ReduceOp::sum}, std::pair{DType::u8, ReduceOp::max},
                                 std::pair{DType::f64, ReduceOp::avg}}) {
    for (const std::size_t count : boundary_counts(backend(), ranks(), type, kSmallScratch,
                                                   backend().on_gpus ? 800 << 10 : 160 << 10)) {
      for (int placement = 0; placement < kPlacementCount; ++placement) {
        for (const bool in_place : {false, true}) {
          // The number of cases per placement is odd against this, so that all meet all in the end.
          if (n++ % (3 * kThin) != 0) continue;
          CollectiveCase each = random_case(random);
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
        CollectiveCase each = random_case(random);
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
      CollectiveCase each = random_case(random);
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

/// A file, for as long as this lives.
class TuningFile {
 public:
  explicit TuningFile(const Tuning& tuning)
      : path_(fmt::format("{}/tuning-{}.json", ::testing::TempDir(), ::getpid())) {
    std::ofstream(path_) << tuning.to_json();
  }
  ~TuningFile() { std::filesystem::remove(path_); }
  TuningFile(const TuningFile&) = delete;
  TuningFile& operator=(const TuningFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST_P(AllReduce, GoesEveryWayATuningTableCanName) {
  const Backend& on = backend();
  const auto kind = on.on_gpus ? onehop::Backend::cuda : onehop::Backend::host;
  const AllStreams streams(ranks());
  for (const TypeClass types : {TypeClass::floats, TypeClass::any}) {
    const auto of_class =
        types == TypeClass::floats ? std::array{DType::bf16, DType::f64} : std::array{DType::u8, DType::i32};
    std::vector<Way> ways = candidate_ways(kind, ranks(), types);
    if (on.on_gpus) ways.emplace_back(DeviceWay{.protocol = DeviceProtocol::copies, .blocks = kAllBlocks});
    std::size_t n = 0;
    for (const Way& way : ways) {
      // Every protocol, and of its shapes some.
      if (n++ % (on.on_gpus ? 2 : 3 * kThin) != 0 && way != ways.back()) continue;
      std::mt19937_64 random(seed());
      std::vector<CollectiveCase> cases;
      for (const DType type : of_class) {
        for (const std::size_t bytes : {8u, 1000u, 66'000u, 999'992u}) {
          CollectiveCase each = random_case(random);
          each.algorithm = std::nullopt;
          each.type = type;
          each.op = bytes % 3 == 0 ? ReduceOp::max : ReduceOp::sum;
          each.count = bytes / size_of(type);
          cases.push_back(each);
        }
      }
      const TuningFile table(
          {.device = "", .rows = {{.backend = kind, .ranks = ranks(), .types = types, .way = way}}});
      JoinOptions options;
      options.scratch_bytes = kSmallScratch;
      options.tuning = table.path();
      if (on.on_gpus) options.copy_scratch_bytes = 1 << 20;
      SCOPED_TRACE(to_string(way));
      run(cases, streams, options);
    }
  }
}

TEST_P(AllReduce, TreatsSpecialValuesAsTheContractSays) {
  struct Special {
    DType type;
    Reduction how;
    std::vector<Bytes> inputs;  ///< per rank
    Bytes expected;
  };
  // Ranks 0 and 1 meet every pair of values (but of the 1-byte types, where every third pair has to do); the
  // others bring what comes next in the list.
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
    std::byte* const data = memory->allocate(most);
    for (const Special& each : specials) {
      const Bytes& input = each.inputs[static_cast<std::size_t>(group.rank().value)];
      for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
        const std::size_t count = input.size() / size_of(each.type);
        memory->upload(data, input.data(), input.size());
        (void)all_reduce(group, data, data, count, each.type, each.how.op, memory->stream(),
                         {.algorithm = algorithm, .timeout = {}, .factor = each.how.factor});
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

/// Thousands of calls with nothing between them but what the ranks do with their data, and delays now and
/// then: a rank that is early must not disturb one that is late.
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
      CollectiveCase each = random_case(together);
      each.type = static_cast<DType>(together() % kDTypeCount);
      const std::vector<Reduction> reductions = reductions_of(each.type);
      each.set(reductions[together() % reductions.size()]);
      // Every magnitude is as likely as any other.
      const std::size_t limit = kMaxBytes >> together() % 17;
      each.count = together() % (limit / size_of(each.type) + 1);
      (void)workspace.run(each, streams[each.type]);
      const std::uint64_t dice = alone();
      if (dice % 16 == 0) std::this_thread::yield();
      if (dice % 128 == 1) std::this_thread::sleep_for(std::chrono::microseconds{dice / 128 % 500});
    }
  });
}

// --- groups of calls ---

/// All-reduces that a rank makes in one GroupCall, in memory that is poisoned where none of them may write.
class Together {
 public:
  Together(const Backend& backend, Group& group, const AllStreams& streams)
      : group_(group),
        streams_(streams),
        memory_(backend.memory(group)),
        arena_(memory_->allocate(kArenaBytes)),
        alone_(seed() + static_cast<std::uint64_t>(group.rank().value) + 1) {}
  ~Together() { memory_->release(arena_); }
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;

  [[nodiscard]] bool has_room(const CollectiveCase& each) const {
    return before_.size() + 2 * (each.count * size_of(each.type) + kSpread) <= kArenaBytes;
  }
  /// `each` says all but where its data lies, which is drawn here.
  void add(const CollectiveCase& each) {
    const std::size_t bytes = each.count * size_of(each.type);
    const std::size_t out = place(bytes, size_of(each.type));
    const std::size_t in = each.in_place ? out : place(bytes, size_of(each.type));
    streams_[each.type].input(group_.rank().value, each.start, each.count, before_.data() + in);
    calls_.push_back({each, in, out});
  }
  /// Makes them and compares all that was and was not written.
  void run() {
    Bytes after = before_;
    for (const Call& call : calls_) {
      streams_[call.each.type].expected({call.each.op, call.each.factor}, call.each.start, call.each.count,
                                        after.data() + call.out);
    }
    memory_->upload(arena_, before_.data(), before_.size());
    GroupCall scope;
    for (const Call& call : calls_) {
      (void)all_reduce(group_, arena_ + call.in, arena_ + call.out, call.each.count, call.each.type,
                       call.each.op, memory_->stream(),
                       {.algorithm = call.each.algorithm, .timeout = {}, .factor = call.each.factor});
    }
    scope.end();
    group_.synchronize(memory_->stream());
    Bytes got(after.size());
    memory_->download(got.data(), arena_, got.size());
    if (got != after) {
      const auto at =
          static_cast<std::size_t>(std::mismatch(got.begin(), got.end(), after.begin()).first - got.begin());
      std::string text =
          fmt::format("rank {}: byte {} is wrong after {} calls in one GroupCall:", group_.rank().value, at,
                      calls_.size());
      for (const Call& call : calls_) {
        text += fmt::format("\n  {} from {} to {}", call.each.describe(), call.in, call.out);
      }
      throw std::runtime_error(text);
    }
    calls_.clear();
    before_.clear();
  }

 private:
  static constexpr std::size_t kArenaBytes = 6 << 20;
  static constexpr std::size_t kSpread = 64;
  static constexpr std::byte kPoison{0xa5};
  struct Call {
    CollectiveCase each;
    std::size_t in;
    std::size_t out;
  };

  /// Room for so many bytes, at any place that elements may have.
  std::size_t place(std::size_t bytes, std::size_t element) {
    const std::size_t gap = alone_() % 2 == 0 ? 0 : alone_() % (kSpread / 2);
    const std::size_t at = (before_.size() + gap + element - 1) / element * element;
    before_.resize(at + bytes, kPoison);
    return at;
  }

  Group& group_;
  const AllStreams& streams_;
  std::unique_ptr<RankMemory> memory_;
  std::byte* arena_;
  std::mt19937_64 alone_;
  std::vector<Call> calls_;
  Bytes before_;
};

/// Small ones and empty ones, now and then one that is too large to go with others, and, as a rule, of one
/// type and op.
TEST_P(AllReduce, GivesTheSameBitsInAGroupCallOfUpTo70) {
  const int scopes = kSanitized ? 12 : 120;
  const AllStreams streams(ranks());
  backend().run(ranks(), {}, [&](Group& group) {
    constexpr std::size_t kMost = 64 << 10;
    Together together(backend(), group, streams);
    Workspace plain(backend(), group, kMost);
    std::mt19937_64 random(seed());
    std::uint64_t calls = 0;
    for (int scope = 0; scope < scopes; ++scope) {
      CollectiveCase each;
      // Every magnitude is as likely as any other.
      const auto draw_count = [&](std::size_t most) {
        const std::size_t limit = most >> random() % 17;
        return random() % 8 == 0 ? random() % 2 : random() % (limit / size_of(each.type) + 1);
      };
      const auto draw_type = [&] { each.type = static_cast<DType>(random() % kDTypeCount); };
      const auto draw_reduction = [&] {
        const std::vector<Reduction> all = reductions_of(each.type);
        const Reduction& how = all[random() % all.size()];
        each.op = how.op;
        each.factor = how.factor;
      };
      draw_type();
      draw_reduction();
      for (std::uint64_t left = 1 + random() % 70; left > 0; --left) {
        const bool another = random() % 32 == 0;
        if (another) draw_type();
        if (another || random() % 32 == 0) draw_reduction();
        if (random() % 32 == 0) each.algorithm = kAlgorithms[random() % std::size(kAlgorithms)];
        each.count = draw_count(random() % 64 == 0 ? 600 << 10 : kMost);
        each.in_place = random() % 2 == 0;
        each.start = random() % Streams::kPeriod;
        if (!together.has_room(each)) break;
        together.add(each);
        ++calls;
      }
      together.run();
      each = random_case(random);
      draw_type();
      draw_reduction();
      each.count = draw_count(kMost);
      (void)plain.run(each, streams[each.type]);
      ++calls;
    }
    const auto usage = group.usage();
    if (std::accumulate(usage.begin(), usage.end(), std::uint64_t{0}) != calls)
      throw std::runtime_error(fmt::format("{} calls were not all counted", calls));
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

/// Sets a variable of the environment, which ranks read when they join, while it lives.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) { (void)::setenv(name, value, 1); }
  ~ScopedVariable() { (void)::unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
};

/// Numbers in a rank's memory.
template <class T>
class Array {
 public:
  Array(RankMemory& memory, std::size_t count, T value)
      : memory_(memory), count_(count), data_(reinterpret_cast<T*>(memory.allocate(count * sizeof(T)))) {
    const std::vector<T> values(count, value);
    memory.upload(data_, values.data(), count * sizeof(T));
  }
  ~Array() { memory_.release(reinterpret_cast<std::byte*>(data_)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> values(count_);
    memory_.download(values.data(), data_, count_ * sizeof(T));
    return values;
  }

 private:
  RankMemory& memory_;
  std::size_t count_;
  T* data_;
};

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

// On GPUs calls are compared where ONEHOP_CHECK asks for it; otherwise waits time out (tests/fault).
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
      // Still in step.
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

TEST_P(AllReduce, RejectsADifferenceInAGroupCallOnEveryRankAndTheGroupStaysUsable) {
  const ScopedVariable check("ONEHOP_CHECK", "1");
  backend().run(ranks(), {}, [&](Group& group) {
    const std::unique_ptr<RankMemory> memory = backend().memory(group);
    const bool odd_one = group.rank().value == group.size() - 1;
    constexpr std::size_t kRoom = 80'000;
    const Array<std::int32_t> ones(*memory, kRoom, 1);
    const auto make = [&](std::size_t last_count, std::size_t last_out) {
      const Array<std::int32_t> out(*memory, kRoom, 7);
      try {
        GroupCall scope;
        for (const std::size_t at : {0u, 1u, 2u}) {
          (void)all_reduce(group, ones.data() + 1000 * at, out.data() + (at == 2 ? last_out : 1000 * at),
                           at == 2 ? last_count : 1000, DType::i32, ReduceOp::sum, memory->stream());
        }
        scope.end();
      } catch (const Error& error) {
        group.synchronize(memory->stream());
        const std::vector<std::int32_t> values = out.values();
        EXPECT_EQ(std::count(values.begin() + 2000, values.end(), 7), kRoom - 2000) << error.what();
        return error.message();
      }
      group.synchronize(memory->stream());
      const std::vector<std::int32_t> values = out.values();
      EXPECT_EQ(std::count(values.begin(), values.begin() + 3000, group.size()), 3000);
      return std::string("made");
    };
    EXPECT_EQ(make(1000, 2000), "made");
    // By some ranks' counts all go in one launch, by the other's they do not.
    EXPECT_THAT(make(odd_one ? 999 : 1000, 2000), ::testing::HasSubstr("count 999"));
    EXPECT_THAT(make(odd_one ? 70'000 : 1000, 2000), ::testing::HasSubstr("count 70000"));
    if (backend().on_gpus) {
      EXPECT_THAT(make(1000, odd_one ? 1999 : 2000), ::testing::HasSubstr("of the same GroupCall"));
    }
    EXPECT_EQ(make(1000, 2000), "made");
  });
}

// --- the legacy policy ---

class LegacyAllReduce : public AllReduce {
 protected:
  void run_legacy(std::size_t scratch_bytes, const std::function<void(Group&)>& body) const {
    JoinOptions options;
    options.policy = AlgorithmPolicy::legacy;
    options.scratch_bytes = scratch_bytes;
    backend().run(ranks(), options, body);
  }
};

TEST_P(LegacyAllReduce, UsesOneShotTo256KiBTwoShotTo10MiBAndThenNone) {
  const AllStreams streams(ranks(), {DType::f32, DType::bf16});
  run_legacy(kDefaultScratch, [&](Group& group) {
    Workspace workspace(backend(), group, (10 << 20) + 64);
    for (const DType type : {DType::f32, DType::bf16}) {
      const auto expect = [&](std::size_t bytes, Algorithm algorithm) {
        CollectiveCase each;
        each.type = type;
        each.count = bytes / size_of(type);
        each.in_place = true;
        each.start = bytes % Streams::kPeriod;
        EXPECT_EQ(workspace.run(each, streams[type]), algorithm) << bytes;
      };
      for (const std::size_t bytes : {0ul, 4ul, 4096ul, (256ul << 10) - 4, 256ul << 10})
        expect(bytes, Algorithm::one_shot);
      expect((256 << 10) + 4, Algorithm::two_shot);
      // (plan_test.cc has these limits too; carrying so much takes a while.)
      if (kSanitized && (group.size() > 2 || type == DType::bf16)) continue;
      expect(10 << 20, Algorithm::two_shot);
      expect((10 << 20) + 4, Algorithm::none);
    }
  });
}

TEST_P(LegacyAllReduce, DeclinesWhatTheOriginalDeclines) {
  const AllStreams streams(ranks(), {DType::f16, DType::f32, DType::bf16, DType::f64});
  run_legacy(kSmallScratch, [&](Group& group) {
    Workspace workspace(backend(), group, 200 << 10);
    const auto expect = [&](DType type, ReduceOp op, std::size_t count, Algorithm algorithm,
                            std::size_t shift = 0) {
      CollectiveCase each{.type = type, .op = op, .count = count, .algorithm = {}, .shift = shift};
      EXPECT_EQ(workspace.run(each, streams[type]), algorithm) << each.describe();
    };
    expect(DType::f32, ReduceOp::sum, 16, Algorithm::one_shot);
    expect(DType::f16, ReduceOp::sum, 16, Algorithm::none);
    expect(DType::f64, ReduceOp::sum, 16, Algorithm::none);
    expect(DType::f32, ReduceOp::max, 16, Algorithm::none);
    expect(DType::bf16, ReduceOp::sum, 16, Algorithm::one_shot);
    expect(DType::bf16, ReduceOp::sum, 17, Algorithm::none);  // 34 bytes
    // Ranks on GPUs do not meet to hear of each other's alignment: they carry what the original declines.
    const Algorithm misaligned = backend().on_gpus ? Algorithm::one_shot : Algorithm::none;
    expect(DType::bf16, ReduceOp::sum, 16, misaligned, 1);
    // Misaligned on one rank alone: the same on all.
    for (int r = 0; r < group.size(); ++r) {
      expect(DType::bf16, ReduceOp::sum, 16, misaligned, group.rank() == Rank{r} ? 1 : 0);
    }
    // Not more than the buffer holds.
    expect(DType::f32, ReduceOp::sum, kSmallScratch / 4, Algorithm::one_shot);
    expect(DType::f32, ReduceOp::sum, kSmallScratch / 4 + 1, Algorithm::none);
  });
}

TEST_P(LegacyAllReduce, ForcingAnAlgorithmOverridesThePolicy) {
  const AllStreams streams(ranks(), {DType::f16});
  run_legacy(kSmallScratch, [&](Group& group) {
    Workspace workspace(backend(), group, 200 << 10);
    for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
      CollectiveCase each{.type = DType::f16, .count = 50021, .algorithm = algorithm, .shift = 1};
      EXPECT_EQ(workspace.run(each, streams[DType::f16]), algorithm);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, AllReduce, ::testing::ValuesIn(parameters(&Backend::sizes)), name_of);
INSTANTIATE_TEST_SUITE_P(, LegacyAllReduce, ::testing::ValuesIn(parameters(&Backend::few_sizes)), name_of);

}  // namespace
}  // namespace onehop::testing
