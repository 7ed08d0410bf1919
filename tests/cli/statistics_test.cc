// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics.h"

#include <gtest/gtest.h>

#include "bench/check_data.h"

namespace onehop::cli {
namespace {

TEST(Statistics, MedianIsTheMiddleOrTheMeanOfTheMiddleTwo) {
  EXPECT_DOUBLE_EQ(summarize({3, 1, 2}).median, 2);
  EXPECT_DOUBLE_EQ(summarize({4, 1, 3, 2}).median, 2.5);
  EXPECT_DOUBLE_EQ(summarize({7}).median, 7);
}

TEST(Statistics, P95IsTheNearestRank) {
  std::vector<double> hundred;
  for (int i = 100; i >= 1; --i) hundred.push_back(i);
  EXPECT_DOUBLE_EQ(summarize(hundred).p95, 95);
  EXPECT_DOUBLE_EQ(summarize(hundred).min, 1);
  EXPECT_DOUBLE_EQ(summarize({7}).p95, 7);
}

TEST(Statistics, TheSlowestRankCountsInEverySample) {
  EXPECT_EQ(slowest_rank({{1, 5, 3}, {2, 4, 3}, {0, 0, 9}}), (std::vector<double>{2, 5, 9}));
}

TEST(Statistics, BandwidthIsBytesOverTime) {
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(1000000, 100), 10);
}

constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64, DType::e4m3, DType::e5m2,
                            DType::i8,  DType::u8,   DType::i32, DType::u32, DType::i64,  DType::u64};

TEST(CheckData, FindsASingleFlippedBitOfTheSignInEveryType) {
  for (const DType type : kTypes) {
    const CheckData data{type, ReduceOp::max, 1, 42};  // of one rank the result is its input
    std::vector<std::byte> bytes(100 * size_of(type));
    fill_input(data, 0, bytes.data(), 100);
    EXPECT_FALSE(find_wrong(data, bytes.data(), 100).has_value()) << to_string(type);
    bytes[bytes.size() - 1] ^= std::byte{0x80};
    const auto wrong = find_wrong(data, bytes.data(), 100);
    ASSERT_TRUE(wrong.has_value()) << to_string(type);
    EXPECT_EQ(wrong->index, 99u);
    EXPECT_NE(wrong->expected, wrong->got);
  }
}

TEST(CheckData, AcceptsAPremultipliedSumButNoOtherFactor) {
  for (const DType type : {DType::f32, DType::i32}) {
    CheckData data{.type = type, .op = ReduceOp::premul_sum, .ranks = 1, .seed = 5, .factor = -3};
    constexpr std::size_t kCount = 100;
    std::vector<std::byte> bytes(kCount * size_of(type));
    fill_input(data, 0, bytes.data(), kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      if (type == DType::f32) {
        reinterpret_cast<float*>(bytes.data())[i] *= -3;
      } else {
        reinterpret_cast<std::uint32_t*>(bytes.data())[i] *= static_cast<std::uint32_t>(-3);
      }
    }
    EXPECT_FALSE(find_wrong(data, bytes.data(), kCount).has_value()) << to_string(type);
    data.factor = 3;
    EXPECT_TRUE(find_wrong(data, bytes.data(), kCount).has_value()) << to_string(type);
  }
}

TEST(CheckData, AcceptsTheFloatSumInAnyOrderButNotALostRank) {
  const CheckData data{DType::f32, ReduceOp::sum, 4, 7};
  constexpr std::size_t kCount = 1000;
  std::vector<std::vector<float>> inputs(4, std::vector<float>(kCount));
  for (int rank = 0; rank < 4; ++rank)
    fill_input(data, rank, inputs[static_cast<std::size_t>(rank)].data(), kCount);
  std::vector<float> backwards(kCount);
  std::vector<float> lost(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    backwards[i] = ((inputs[3][i] + inputs[2][i]) + inputs[1][i]) + inputs[0][i];
    lost[i] = inputs[0][i] + inputs[1][i] + inputs[2][i];
  }
  EXPECT_FALSE(find_wrong(data, backwards.data(), kCount).has_value());
  ASSERT_TRUE(find_wrong(data, lost.data(), kCount).has_value());
  EXPECT_EQ(find_wrong(data, lost.data(), kCount)->index, 0u);
}

TEST(CheckData, InputsDifferBetweenRanksAndSeeds) {
  std::vector<std::uint64_t> a(8);
  std::vector<std::uint64_t> b(8);
  std::vector<std::uint64_t> c(8);
  fill_input({DType::u64, ReduceOp::sum, 2, 1}, 0, a.data(), a.size());
  fill_input({DType::u64, ReduceOp::sum, 2, 1}, 1, b.data(), b.size());
  fill_input({DType::u64, ReduceOp::sum, 2, 2}, 0, c.data(), c.size());
  EXPECT_NE(a, b);
  EXPECT_NE(a, c);
}

TEST(CheckData, WhatIsMovedIsAnyBitsOfItsSourceAndAllOfThem) {
  for (const DType type : kTypes) {
    CheckData data{.type = type, .op = std::nullopt, .ranks = 3, .seed = 9};
    std::vector<std::byte> bytes(5000 * size_of(type));
    fill_input(data, 2, bytes.data(), 5000);
    data.source = 2;
    EXPECT_FALSE(find_wrong(data, bytes.data(), 5000).has_value()) << to_string(type);
    for (const int bit : {0, 7}) {
      std::vector<std::byte> flipped = bytes;
      flipped[4321 * size_of(type)] ^= std::byte{1} << bit;
      ASSERT_TRUE(find_wrong(data, flipped.data(), 5000).has_value()) << to_string(type);
      EXPECT_EQ(find_wrong(data, flipped.data(), 5000)->index, 4321u);
    }
    data.source = 1;
    EXPECT_TRUE(find_wrong(data, bytes.data(), 5000).has_value()) << "another rank's";
  }
}

TEST(CheckData, HashesTellBytesAndLengthsApart) {
  const char bytes[] = "0123456789abcdef";
  EXPECT_EQ(hash_bytes(bytes, 16), hash_bytes(std::string(bytes).data(), 16));
  EXPECT_NE(hash_bytes(bytes, 16), hash_bytes(bytes, 15));
  EXPECT_NE(hash_bytes("a", 1), hash_bytes("b", 1));
}

}  // namespace
}  // namespace onehop::cli
