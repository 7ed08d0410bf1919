// SPDX-License-Identifier: Apache-2.0
// Reference conversions of the narrow floating-point formats, one value at a time, written for clarity. Tests
// compare the fast conversions (backend/host/reduce_kernels.h) and results of GPUs with them.
#pragma once

#include <bit>
#include <cstdint>

namespace onehop {

/// A format of 1 sign bit, `exponent_bits` and `fraction_bits`, with subnormals and the exponent bias of IEEE
/// 754.
struct FloatFormat {
  int exponent_bits;
  int fraction_bits;
  /// True if the largest exponent field holds infinities and NaNs; results beyond the largest finite number
  /// then become infinity, as IEEE 754 rounds. False if that field holds numbers and only all ones is NaN;
  /// results beyond the largest finite number, including infinite ones, then become that number.
  bool has_infinity;
  /// The encoding that every NaN becomes.
  std::uint64_t nan;

  [[nodiscard]] constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] constexpr std::uint32_t sign_bit() const { return 1u << (exponent_bits + fraction_bits); }
  /// The exponent field of all ones with fraction zero: infinity, if the format has one.
  [[nodiscard]] constexpr std::uint32_t top_exponent() const {
    return ((1u << exponent_bits) - 1) << fraction_bits;
  }
  [[nodiscard]] constexpr std::uint32_t largest_finite() const {
    return has_infinity ? top_exponent() - 1 : sign_bit() - 2;
  }
};

// The NaN encodings are those that GPU conversions produce.
inline constexpr FloatFormat kF16{5, 10, true, 0x7fff};
inline constexpr FloatFormat kBF16{8, 7, true, 0x7fff};
inline constexpr FloatFormat kE4M3{4, 3, false, 0x7f};
inline constexpr FloatFormat kE5M2{5, 2, true, 0x7f};

inline constexpr std::uint32_t kF32Nan = 0x7fc00000;
inline constexpr std::uint64_t kF64Nan = 0x7ff8000000000000;
inline constexpr FloatFormat kF32{8, 23, true, kF32Nan};
inline constexpr FloatFormat kF64{11, 52, true, kF64Nan};

/// Returns the exact value of `bits` in `format`, which has at most 16 bits. NaN becomes the quiet NaN kF32Nan.
[[nodiscard]] constexpr float decode(const FloatFormat& format, std::uint32_t bits) {
  const std::uint32_t magnitude = bits & (format.sign_bit() - 1);
  const std::uint32_t sign = (bits & format.sign_bit()) != 0 ? 0x80000000u : 0;
  const bool top = magnitude >= format.top_exponent();
  if (format.has_infinity ? magnitude > format.top_exponent() : magnitude == format.sign_bit() - 1) {
    return std::bit_cast<float>(kF32Nan);
  }
  if (format.has_infinity && top) return std::bit_cast<float>(sign | 0x7f800000u);

  // significand * 2^exponent. Both factors and the product are representable as float; double holds every
  // power.
  const auto field = static_cast<int>(magnitude >> format.fraction_bits);
  const std::uint32_t fraction = magnitude & ((1u << format.fraction_bits) - 1);
  const std::uint32_t significand = field == 0 ? fraction : fraction | (1u << format.fraction_bits);
  const int exponent = (field == 0 ? 1 : field) - format.bias() - format.fraction_bits;
  const auto power = std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
  const auto value = static_cast<float>(significand * power);
  return sign != 0 ? -value : value;
}

/// Converts `value` to `format`, which has at most 16 bits, rounding to nearest, ties to even.
[[nodiscard]] constexpr std::uint16_t encode(const FloatFormat& format, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(format.nan);

  std::uint64_t result = format.sign_bit();  // infinity: above every number
  if (magnitude < 0x7f800000u) {
    // |value| = significand * 2^exponent.
    const auto field = static_cast<int>(magnitude >> 23);
    const std::uint64_t significand = field == 0 ? magnitude : (magnitude & 0x7fffffu) | 0x800000u;
    const int exponent = (field == 0 ? 1 : field) - 127 - 23;
    // The format's unit in the last place at this magnitude, no smaller than its smallest subnormal.
    const int smallest = 1 - format.bias() - format.fraction_bits;
    const int wanted = exponent + 23 - format.fraction_bits;
    const int unit = wanted < smallest ? smallest : wanted;
    const int drop =
        unit - exponent > 30 ? 30 : unit - exponent;  // 30 drops all 24 bits and leaves less than a half
    const std::uint64_t rest = significand & ((1ull << drop) - 1);
    const std::uint64_t half = drop == 0 ? 0 : 1ull << (drop - 1);
    std::uint64_t kept = significand >> drop;
    if (drop != 0 && (rest > half || (rest == half && (kept & 1) != 0))) ++kept;
    // Adding the significand with its hidden bit to the exponent field minus one makes the carry correct.
    result = (static_cast<std::uint64_t>(unit - smallest) << format.fraction_bits) + kept;
  }
  if (result > format.largest_finite()) {
    result = format.has_infinity ? format.top_exponent() : format.largest_finite();
  }
  return static_cast<std::uint16_t>(result | ((bits >> 31) != 0 ? format.sign_bit() : 0));
}

}  // namespace onehop
