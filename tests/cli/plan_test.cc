// SPDX-License-Identifier: Apache-2.0
// Decisions of the benchmark: devices, calls per sample, and times from stamps of several clocks.
#include "bench/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "bench/check_data.h"
#include "bench/device.h"

namespace onehop::cli {

// These tests do not link the CUDA sources.
GpuCount count_gpus() {
  return {3, "as asked"};
}

namespace {

using ::testing::HasSubstr;

BenchOptions options_of(DType type, ReduceOp op, int ranks) {
  BenchOptions options;
  options.cuda = true;
  options.type = type;
  options.op = op;
  options.ranks = ranks;
  return options;
}

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

// --- devices ---

const GpuCount kNone{0, "there is no NVIDIA driver on this machine"};

TEST(UseGpus, AutoTakesThemWhenThereAreEnoughForAllRanks) {
  EXPECT_FALSE(use_gpus(DeviceChoice::automatic, kNone, std::nullopt, false));
  EXPECT_FALSE(use_gpus(DeviceChoice::automatic, {1, ""}, std::nullopt, false));
  EXPECT_TRUE(use_gpus(DeviceChoice::automatic, {2, ""}, std::nullopt, false));
  EXPECT_TRUE(use_gpus(DeviceChoice::automatic, {1, ""}, 1, false));
  EXPECT_FALSE(use_gpus(DeviceChoice::automatic, kNone, 1, false));
  EXPECT_TRUE(use_gpus(DeviceChoice::automatic, {4, ""}, 4, false));
  EXPECT_FALSE(use_gpus(DeviceChoice::automatic, {4, ""}, 5, false));
  EXPECT_FALSE(use_gpus(DeviceChoice::automatic, {16, ""}, 9, false)) << "more than a group of GPUs holds";
  EXPECT_FALSE(use_gpus(DeviceChoice::host, {8, ""}, 4, false));
}

TEST(UseGpus, CudaThatCannotBeHadIsSaidWithTheReason) {
  const auto message = [](const GpuCount& gpus, std::optional<int> ranks) {
    return message_of([&] { (void)use_gpus(DeviceChoice::cuda, gpus, ranks, false); });
  };
  EXPECT_THAT(message(kNone, 4), HasSubstr("no NVIDIA driver"));
  EXPECT_THAT(message({1, ""}, std::nullopt), HasSubstr("2 ranks but 1 GPU in sight"));
  EXPECT_THAT(message({2, ""}, 4), HasSubstr("4 ranks but 2 GPUs in sight"));
  EXPECT_THAT(message({16, ""}, 9), HasSubstr("at most 8 GPUs"));
  EXPECT_TRUE(use_gpus(DeviceChoice::cuda, {1, ""}, 4, true)) << "ranks may share a GPU in tests";
}

TEST(UseGpus, RanksDefaultToAllGpusThatAGroupHolds) {
  EXPECT_EQ(default_ranks(false, {8, ""}), 4);
  EXPECT_EQ(default_ranks(true, {2, ""}), 2);
  EXPECT_EQ(default_ranks(true, {8, ""}), 8);
  EXPECT_EQ(default_ranks(true, {16, ""}), 8);
}

TEST(UseGpus, ARankGetsItsNumberOrTheOnlyOneItIsShown) {
  EXPECT_EQ(device_of(2, 4, false), DeviceId{2});
  EXPECT_EQ(device_of(3, 1, false), DeviceId{0});
  EXPECT_EQ(device_of(3, 2, true), DeviceId{1});
  EXPECT_THAT(message_of([] { (void)device_of(3, 2, false); }), HasSubstr("rank 3"));
}

TEST(CountGpusInChild, ReturnsWhatTheChildFound) {
  const GpuCount count = count_gpus_in_child();
  EXPECT_EQ(count.count, 3);
  EXPECT_EQ(count.why, "as asked");
}

// --- calls ---

TEST(ChooseCalls, ManyWhereACallIsShortAndFewWhereItIsLong) {
  const BenchOptions options = options_of(DType::bf16, ReduceOp::sum, 4);
  EXPECT_EQ(choose_calls(options, 1 << 10), 100);
  EXPECT_EQ(choose_calls(options, 16 << 20), 100);
  EXPECT_EQ(choose_calls(options, 64 << 20), 100);
  const int at_1g = choose_calls(options, std::uint64_t{1} << 30);
  EXPECT_GT(at_1g, 4);
  EXPECT_LT(at_1g, 20);
  EXPECT_EQ(choose_calls(options, std::uint64_t{1} << 36), 4);
}

TEST(ChooseCalls, TwoWhenIsolatedAndAsManyAsWereAskedForOtherwise) {
  BenchOptions options = options_of(DType::bf16, ReduceOp::sum, 4);
  options.calls = 7;
  EXPECT_EQ(choose_calls(options, 1 << 10), 7);
  options.mode = BenchMode::isolated;
  EXPECT_EQ(choose_calls(options, 1 << 10), 2);
  options.in_place = true;
  options.op = ReduceOp::prod;
  EXPECT_EQ(choose_calls(options, 1 << 10), 1) << "a second one would overflow";
}

TEST(ChooseCalls, AtLeastTenSamples) {
  for (const BenchMode mode :
       {BenchMode::chain, BenchMode::dependent, BenchMode::isolated, BenchMode::eager}) {
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1} << 20, std::uint64_t{1} << 32}) {
      BenchOptions options = options_of(DType::f32, ReduceOp::sum, 8);
      options.mode = mode;
      EXPECT_GE(choose_samples(options, bytes), 10);
    }
  }
}

/// The largest input, reduced over and over by as many ranks that all hold it.
double grown(ReduceOp op, int ranks, int calls) {
  double value = std::nextafter(2.0, 0.0);
  for (int call = 0; call < calls; ++call) {
    double next = value;
    for (int rank = 1; rank < ranks; ++rank) next = op == ReduceOp::prod ? next * value : next + value;
    value = next;
  }
  return value;
}

TEST(FiniteCalls, WhatTheySumStaysWithinTheType) {
  struct Range {
    DType type;
    double largest;
  };
  for (const Range range : {Range{DType::f16, 65504}, Range{DType::bf16, 3.38e38}, Range{DType::f32, 3.40e38},
                            Range{DType::e4m3, 448}, Range{DType::e5m2, 57344}}) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
      const int calls = finite_calls(options_of(range.type, ReduceOp::sum, ranks));
      EXPECT_GE(calls, 1);
      EXPECT_LE(grown(ReduceOp::sum, ranks, calls), range.largest)
          << to_string(range.type) << ", " << ranks << " ranks";
    }
  }
  EXPECT_GE(finite_calls(options_of(DType::bf16, ReduceOp::sum, 4)), 50)
      << "the usual comparison is not cut short";
}

TEST(FiniteCalls, LimitOnlyWhatFeedsBackAndGrows) {
  BenchOptions options = options_of(DType::f16, ReduceOp::sum, 4);
  EXPECT_EQ(choose_calls(options, 1024), 100);
  options.mode = BenchMode::dependent;
  EXPECT_EQ(choose_calls(options, 1024), finite_calls(options));
  EXPECT_LT(finite_calls(options), 100);
  options.op = ReduceOp::avg;
  EXPECT_EQ(choose_calls(options, 1024), 100);
  options = options_of(DType::i32, ReduceOp::sum, 4);
  options.in_place = true;
  EXPECT_TRUE(feeds_back(options));
  EXPECT_EQ(choose_calls(options, 1024), 100) << "integers wrap";
}

TEST(FiniteCalls, OfPremultipliedSumsDependOnTheFactor) {
  BenchOptions options = options_of(DType::e4m3, ReduceOp::premul_sum, 8);
  EXPECT_EQ(finite_calls(options), finite_calls(options_of(DType::e4m3, ReduceOp::sum, 8)));
  options.factor = -0.125;
  EXPECT_EQ(finite_calls(options), 100) << "an average";
  options.factor = -16;
  EXPECT_EQ(finite_calls(options), 1) << "at most 256 of 448";
  options.factor = 17;
  EXPECT_EQ(finite_calls(options), 0);
  options.type = DType::i8;
  EXPECT_EQ(finite_calls(options), 100) << "integers wrap";
}

TEST(ChooseSlots, ColdCallsTouchMoreThanTwiceTheCacheOrOneBufferEach) {
  constexpr std::uint64_t kCache = 60 << 20;
  BenchOptions options = options_of(DType::bf16, ReduceOp::sum, 4);
  EXPECT_EQ(choose_slots(options, 1 << 10, kCache), 1);
  options.cold = true;
  EXPECT_EQ(choose_slots(options, 1 << 10, kCache), choose_calls(options, 1 << 10));
  const std::uint64_t large = 16 << 20;
  const int slots = choose_slots(options, large, kCache);
  EXPECT_LT(slots, choose_calls(options, large));
  EXPECT_GT(static_cast<std::uint64_t>(slots - 1) * 2 * large, 2 * kCache);
}

TEST(BenchModes, AreParsedByTheNamesTheyPrint) {
  for (const BenchMode mode :
       {BenchMode::chain, BenchMode::dependent, BenchMode::isolated, BenchMode::eager}) {
    EXPECT_EQ(parse_name(kBenchModes, to_string(mode)), mode);
  }
  EXPECT_THAT(message_of([] { (void)parse_name(kBenchModes, "fast"); }), HasSubstr("'fast'; known: chain"));
}

// --- clocks ---

/// Stamps of two ranks whose clocks differ by `offset` ns: rank 0 arrives at 1000 and ends at 9000 of its
/// clock, rank 1 at 5000 and 8000 of the same. Questions take `there` and answers `back`, and longer in all
/// rounds but one.
std::vector<IsolatedStamps> two_ranks(std::int64_t offset, std::uint64_t there, std::uint64_t back) {
  constexpr std::uint64_t kEpoch = 1'800'000'000'000'000'000;  // as %globaltimer counts
  const auto other = [&](std::uint64_t ns) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(kEpoch + ns) + offset);
  };
  std::vector<IsolatedStamps> ranks(2);
  ranks[0] = {kEpoch + 1000, kEpoch + 9000, {{}, {}}, {{}, {}}};
  ranks[1] = {other(5000), other(8000), {{}, {}}, {{}, {}}};
  for (std::uint64_t round = 0; round < 3; ++round) {
    const std::uint64_t slow = round == 1 ? 0 : 700 + round;
    const std::uint64_t at = 100 * round;
    ranks[0].asked[1].push_back(kEpoch + at);
    ranks[1].asked[0].push_back(other(at + there + slow));
    ranks[0].answered[1].push_back(kEpoch + at + there + slow + back);
  }
  return ranks;
}

TEST(IsolatedTime, CountsFromTheLastArrivalToTheLastEndWhateverTheClocksSay) {
  for (const std::int64_t offset : {0l, 123456789l, -987654321012l}) {
    const IsolatedTime time = isolated_time(two_ranks(offset, 600, 600));
    EXPECT_DOUBLE_EQ(time.us, 4.0) << "from 5000 of rank 1 to 9000 of rank 0";
    EXPECT_DOUBLE_EQ(time.clock_error_us, 0.6);
  }
}

TEST(IsolatedTime, AnUnevenTripIsOffByLessThanItsBound) {
  const IsolatedTime time = isolated_time(two_ranks(5000, 900, 300));
  EXPECT_NE(time.us, 4.0);
  EXPECT_LE(std::fabs(time.us - 4.0), time.clock_error_us);
}

// --- data ---

TEST(CheckDataInParts, SeveralThreadsFillAndFindTheSameAsOne) {
  for (const DType type : {DType::bf16, DType::i8}) {
    const CheckData data{.type = type, .op = ReduceOp::sum, .ranks = 1, .seed = 5};
    constexpr std::size_t kCount = 300001;
    std::vector<std::byte> one(kCount * size_of(type));
    std::vector<std::byte> several(one.size());
    fill_input(data, 0, one.data(), kCount);
    fill_input(data, 0, several.data(), kCount, 4);
    EXPECT_EQ(one, several);
    EXPECT_FALSE(find_wrong(data, several.data(), kCount, 4).has_value());
    for (const std::size_t index : {std::size_t{150000}, kCount - 1}) {
      several[index * size_of(type) + size_of(type) - 1] ^= std::byte{0x80};
      several[(kCount - 1) * size_of(type)] ^= std::byte{0x40};
      const auto wrong = find_wrong(data, several.data(), kCount, 4);
      ASSERT_TRUE(wrong.has_value());
      EXPECT_EQ(wrong->index, 150000u) << "the first one";
    }
  }
}

TEST(CheckDataInParts, APeerMayRoundAtEveryHopAndWeMayNot) {
  CheckData data{.type = DType::bf16, .op = ReduceOp::sum, .ranks = 4, .seed = 11};
  constexpr std::size_t kCount = 4096;
  const auto to_float = [](std::uint16_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  };
  const auto to_bf16 = [](float value) {  // to nearest, ties to even; no NaN here
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  };
  std::vector<std::uint16_t> ring(kCount);
  std::vector<std::uint16_t> next(kCount);
  fill_input(data, 0, ring.data(), kCount);
  for (int rank = 1; rank < 4; ++rank) {
    fill_input(data, rank, next.data(), kCount);
    for (std::size_t i = 0; i < kCount; ++i) ring[i] = to_bf16(to_float(ring[i]) + to_float(next[i]));
  }
  EXPECT_TRUE(find_wrong(data, ring.data(), kCount).has_value());
  data.roundings = 4;
  EXPECT_FALSE(find_wrong(data, ring.data(), kCount).has_value());
  ring[7] = static_cast<std::uint16_t>(ring[7] ^ 0x8000);
  EXPECT_TRUE(find_wrong(data, ring.data(), kCount).has_value());
}

}  // namespace
}  // namespace onehop::cli
