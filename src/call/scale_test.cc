// SPDX-License-Identifier: Apache-2.0
#include "call/scale.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "onehop/types.h"

namespace onehop {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Scale, OfAnAverageDividesByTheNumberOfRanks) {
  EXPECT_EQ(scale_of(DType::bf16, ReduceOp::avg, 1, 3).number, std::bit_cast<std::uint32_t>(3.0f));
  EXPECT_EQ(scale_of(DType::f64, ReduceOp::avg, 1, 3).number, std::bit_cast<std::uint64_t>(3.0));
  EXPECT_EQ(scale_of(DType::i8, ReduceOp::avg, 1, 3).number, 3u);
  for (int type = 0; type < kDTypeCount; ++type) {
    EXPECT_TRUE(scale_of(static_cast<DType>(type), ReduceOp::avg, 1, 3).divides);
  }
}

TEST(Scale, OfAnAverageOfFloatsOverAPowerOfTwoMultipliesByTheInverse) {
  for (const int ranks : {1, 2, 4, 8}) {
    const Scale scale = scale_of(DType::bf16, ReduceOp::avg, 1, ranks);
    EXPECT_TRUE(scale.applies && !scale.divides) << ranks;
    const auto inverse = std::bit_cast<float>(static_cast<std::uint32_t>(scale.number));
    EXPECT_TRUE(scale_of(DType::i32, ReduceOp::avg, 1, ranks).divides) << ranks;
    // The same bits as the quotient, subnormal ones, too.
    std::uint32_t bits = 1;
    for (int i = 0; i < 100'000; ++i) {
      bits = bits * 1'664'525 + 1'013'904'223;
      const auto sum = std::bit_cast<float>(i % 2 == 0 ? bits : bits & 0x80ffffff);
      if (std::isnan(sum)) continue;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(sum * inverse),
                std::bit_cast<std::uint32_t>(sum / static_cast<float>(ranks)))
          << sum << " of " << ranks;
    }
  }
}

TEST(Scale, OfAPremultipliedSumIsTheFactorInTheAccumulationType) {
  const double third = 1.0 / 3;
  for (const DType type : {DType::f16, DType::bf16, DType::f32, DType::e4m3, DType::e5m2}) {
    EXPECT_EQ(scale_of(type, ReduceOp::premul_sum, third, 4).number,
              std::bit_cast<std::uint32_t>(static_cast<float>(third)));
  }
  EXPECT_EQ(scale_of(DType::f64, ReduceOp::premul_sum, third, 4).number, std::bit_cast<std::uint64_t>(third));
  EXPECT_EQ(scale_of(DType::f32, ReduceOp::premul_sum, 1e300, 4).number,
            std::bit_cast<std::uint32_t>(std::numeric_limits<float>::infinity()));
  EXPECT_EQ(scale_of(DType::i32, ReduceOp::premul_sum, -2, 4).number, static_cast<std::uint64_t>(-2));
  EXPECT_EQ(scale_of(DType::u64, ReduceOp::premul_sum, 0x1.8p63, 4).number, 0xc000000000000000u);
  for (int type = 0; type < kDTypeCount; ++type) {
    EXPECT_FALSE(scale_of(static_cast<DType>(type), ReduceOp::premul_sum, 2, 4).divides);
  }
}

TEST(Scale, OfAProductIsTheElementInTheAccumulationType) {
  const auto number_of = [](DType type, std::uint64_t element) {
    const Scale scale = product_with(type, element);
    EXPECT_TRUE(scale.applies && !scale.divides);
    return scale.number;
  };
  EXPECT_EQ(number_of(DType::bf16, 0x4040), std::bit_cast<std::uint32_t>(3.0f));
  EXPECT_EQ(number_of(DType::f16, 0xc200), std::bit_cast<std::uint32_t>(-3.0f));
  EXPECT_EQ(number_of(DType::e4m3, 0x44), std::bit_cast<std::uint32_t>(3.0f));
  EXPECT_EQ(number_of(DType::f32, std::bit_cast<std::uint32_t>(3.0f)), std::bit_cast<std::uint32_t>(3.0f));
  EXPECT_EQ(number_of(DType::f64, std::bit_cast<std::uint64_t>(3.0)), std::bit_cast<std::uint64_t>(3.0));
  EXPECT_EQ(static_cast<std::int8_t>(number_of(DType::i8, 0xfe)), -2);
  EXPECT_EQ(number_of(DType::u64, ~std::uint64_t{0}), ~std::uint64_t{0});
}

TEST(Scale, OfFloatsMayBeAnyNumber) {
  for (const DType type : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::e4m3, DType::e5m2}) {
    for (const double factor : {0.0, -1.0, 1.0 / 3, 1e300, kInfinity, kNan}) {
      EXPECT_TRUE(can_scale(type, factor)) << to_string(type) << " by " << factor;
    }
  }
}

TEST(Scale, OfIntegersIsOneThatTheTypeHoldsExactly) {
  struct Row {
    DType type;
    double least;
    double most;  ///< largest value that a double represents exactly
  };
  const Row rows[] = {
      {DType::i8, -128, 127},
      {DType::u8, 0, 255},
      {DType::i32, -0x1p31, 0x1p31 - 1},
      {DType::u32, 0, 0x1p32 - 1},
      {DType::i64, -0x1p63, 0x1p63 - 0x1p10},
      {DType::u64, 0, 0x1p64 - 0x1p11},
  };
  for (const auto& [type, least, most] : rows) {
    for (const double factor : {least, 0.0, -0.0, 1.0, 3.0, most}) {
      EXPECT_TRUE(can_scale(type, factor)) << to_string(type) << " by " << factor;
    }
    const double below = least == 0 ? -1 : std::nextafter(least, -kInfinity);
    for (const double factor : {below, most + 1 > most ? most + 1 : std::nextafter(most, kInfinity), 0.5,
                                1.0 / 3, kInfinity, -kInfinity, kNan}) {
      EXPECT_FALSE(can_scale(type, factor)) << to_string(type) << " by " << factor;
    }
  }
}

TEST(IsSum, IncludesThoseThatScale) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum}) EXPECT_TRUE(is_sum(op));
  for (const ReduceOp op : {ReduceOp::prod, ReduceOp::min, ReduceOp::max}) EXPECT_FALSE(is_sum(op));
}

TEST(KernelOp, IsOneForBothThatScale) {
  EXPECT_EQ(kernel_op(ReduceOp::sum), 0);
  EXPECT_EQ(kernel_op(ReduceOp::max), 3);
  EXPECT_EQ(kernel_op(ReduceOp::avg), 4);
  EXPECT_EQ(kernel_op(ReduceOp::premul_sum), 4);
  EXPECT_EQ(kernel_op(kWeightedSum), 4);
}

}  // namespace
}  // namespace onehop
