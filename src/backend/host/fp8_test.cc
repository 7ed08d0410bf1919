// SPDX-License-Identifier: Apache-2.0
// Tests every pair of FP8 values with every reduction, against independent arithmetic. Values are decoded as
// the formats define them and combined in double. The result is rounded to f32 by the compiler, and then to
// the nearest of all values of the format.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "onehop/device/encode_fp8.h"
#include "onehop/error.h"

#include "backend/host/reduce.h"
#include "base/numeric.h"
#include "call/scale.h"

namespace onehop::host {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

/// The value of an 8-bit encoding, by the tables of the OCP specification.
double value_of(DType type, int byte) {
  const int mantissa_bits = type == DType::e4m3 ? 3 : 2;
  const int bias = type == DType::e4m3 ? 7 : 15;
  const int mantissas = 1 << mantissa_bits;
  const int exponent = byte % 128 / mantissas;
  const int mantissa = byte % mantissas;
  double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                   : std::ldexp(mantissas + mantissa, exponent - bias - mantissa_bits);
  if (type == DType::e4m3 && byte % 128 == 127) magnitude = kNotANumber;
  if (type == DType::e5m2 && exponent == 31) magnitude = mantissa == 0 ? kInfinity : kNotANumber;
  return byte < 128 ? magnitude : -magnitude;
}

/// The parameter is the number of the type, as gtest prints it.
class Fp8 : public ::testing::TestWithParam<int> {
 protected:
  static constexpr std::uint8_t kNan = 0x7f;
  const DType type{static_cast<DType>(GetParam())};

  /// The nearest value of the format; in a tie, the one with the even byte.
  [[nodiscard]] std::uint8_t rounded(float result) const {
    if (std::isnan(result)) return kNan;
    const int largest = type == DType::e4m3 ? 0x7e : 0x7b;
    const double magnitude = std::fabs(static_cast<double>(result));
    int nearest = largest;
    if (magnitude > value_of(type, largest)) {
      // e5m2 continues to the power of two above its largest values, which stands for infinity.
      if (type == DType::e5m2 && magnitude >= (value_of(type, largest) + 65536) / 2) nearest = largest + 1;
    } else {
      int above = 0;
      while (value_of(type, above) < magnitude) ++above;
      nearest = above;
      if (above > 0) {
        const double to_above = value_of(type, above) - magnitude;
        const double to_below = magnitude - value_of(type, above - 1);
        if (to_below < to_above || (to_below == to_above && above % 2 == 1)) nearest = above - 1;
      }
    }
    return static_cast<std::uint8_t>(nearest | (std::signbit(result) ? 0x80 : 0));
  }

  [[nodiscard]] static double combined(ReduceOp op, double a, double b, double factor) {
    if (op == ReduceOp::prod) return a * b;
    if (op == ReduceOp::min || op == ReduceOp::max) {
      if (std::isnan(a) || std::isnan(b)) return kNotANumber;
      const bool a_first = a < b || (a == b && std::signbit(a));
      return (op == ReduceOp::min) == a_first ? a : b;
    }
    const double sum = static_cast<float>(a + b);
    if (op == ReduceOp::avg) return sum / 2;
    if (op == ReduceOp::premul_sum) return sum * static_cast<double>(static_cast<float>(factor));
    return sum;
  }

  /// Compares both kernels of every instruction set, over all pairs at once.
  void expect_all_pairs(ReduceOp op, double factor) const {
    std::vector<std::uint8_t> a;
    std::vector<std::uint8_t> b;
    std::vector<std::uint8_t> expected;
    for (int x = 0; x < 256; ++x) {
      for (int y = 0; y < 256; ++y) {
        a.push_back(static_cast<std::uint8_t>(x));
        b.push_back(static_cast<std::uint8_t>(y));
        const double result = combined(op, value_of(type, x), value_of(type, y), factor);
        expected.push_back(rounded(static_cast<float>(result)));
      }
    }
    const void* const sources[] = {a.data(), b.data()};
    for (const char* name : {"baseline", "avx2", "avx512"}) {
      std::optional<Isa> isa;
      try {
        isa = find_isa(name);
      } catch (const Error&) {
        continue;  // not supported by this CPU
      }
      std::vector<std::uint8_t> result(a.size());
      isa->kernels->of[static_cast<std::size_t>(type)].reduce[kernel_op(op)].one(
          result.data(), sources, 2, a.size(), scale_of(type, op, factor, 2));
      const auto [got, wanted] = std::mismatch(result.begin(), result.end(), expected.begin());
      if (got == result.end()) continue;
      const auto i = static_cast<std::size_t>(got - result.begin());
      ADD_FAILURE() << name << ": " << to_string(op) << " (factor " << factor << ") of " << int{a[i]} << " ("
                    << value_of(type, a[i]) << ") and " << int{b[i]} << " (" << value_of(type, b[i])
                    << ") is " << int{*got} << ", not " << int{*wanted};
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Types, Fp8,
                         ::testing::Values(static_cast<int>(DType::e4m3), static_cast<int>(DType::e5m2)),
                         [](const auto& p) { return std::string(to_string(static_cast<DType>(p.param))); });

TEST_P(Fp8, EveryPairOfValuesReducesAsTheFormatSays) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg}) {
    expect_all_pairs(op, 1);
  }
}

TEST_P(Fp8, EveryPairOfValuesIsScaledAsTheFormatSays) {
  for (const double factor : {0.5, 3.0, -1.0, 0.0, kInfinity, -kInfinity, kNotANumber}) {
    expect_all_pairs(ReduceOp::premul_sum, factor);
  }
}

TEST(Fp8Values, OverflowIsInfiniteInE5M2AndTheLargestNumberInE4M3) {
  const auto sum = [](DType type, std::uint8_t a, std::uint8_t b) {
    const void* const sources[] = {&a, &b};
    std::uint8_t result = 0;
    reduce_function(type, ReduceOp::sum)(&result, sources, 2, 1, {});
    return result;
  };
  EXPECT_EQ(sum(DType::e5m2, 0x7b, 0x7b), 0x7c) << "57344 + 57344";
  EXPECT_EQ(sum(DType::e5m2, 0x7b, 0x68), 0x7b) << "57344 + 2048 rounds to 57344";
  EXPECT_EQ(sum(DType::e5m2, 0x7b, 0x6c), 0x7c) << "57344 + 4096 lies half-way, and infinity is even";
  EXPECT_EQ(sum(DType::e5m2, 0xfc, 0x7b), 0xfc) << "-infinity + 57344";
  EXPECT_EQ(sum(DType::e5m2, 0xfc, 0x7c), 0x7f) << "-infinity + infinity";
  EXPECT_EQ(sum(DType::e4m3, 0x7e, 0x7e), 0x7e) << "448 + 448";
  EXPECT_EQ(sum(DType::e4m3, 0xfe, 0xfe), 0xfe) << "-448 - 448";
}

TEST(Fp8Values, GpusWithoutInstructionsForThemRoundAlike) {
  // All signs, exponents and upper bits of fractions, with the lower bits that decide about ties.
  for (std::uint32_t upper = 0; upper < 1u << 20; ++upper) {
    for (const std::uint32_t lower : {0x000u, 0x001u, 0x800u, 0xfffu}) {
      const auto value = std::bit_cast<float>(upper << 12 | lower);
      ASSERT_EQ(device::encode_e4m3(value), encode(kE4M3, value)) << value;
      ASSERT_EQ(device::encode_e5m2(value), encode(kE5M2, value)) << value;
    }
  }
}

}  // namespace
}  // namespace onehop::host
