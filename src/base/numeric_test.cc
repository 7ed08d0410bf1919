// SPDX-License-Identifier: Apache-2.0
#include "base/numeric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace onehop {
namespace {

static_assert(decode(kF16, 0x3c00) == 1.0f && decode(kF16, 0x0001) == 0x1p-24f &&
              decode(kF16, 0xfbff) == -65504.0f);
static_assert(decode(kBF16, 0x3f80) == 1.0f && decode(kBF16, 0x0001) == 0x1p-133f &&
              decode(kBF16, 0x7f7f) == 0x1.fep127f);
static_assert(decode(kE4M3, 0x38) == 1.0f && decode(kE4M3, 0x01) == 0x1p-9f &&
              decode(kE4M3, 0xfe) == -448.0f);
static_assert(decode(kE5M2, 0x3c) == 1.0f && decode(kE5M2, 0x01) == 0x1p-16f &&
              decode(kE5M2, 0xfb) == -57344.0f);

struct Named {
  const char* name;
  const FloatFormat* format;
};
void PrintTo(const Named& named, std::ostream* out) {
  *out << named.name;
}
constexpr Named kFormats[] = {{"f16", &kF16}, {"bf16", &kBF16}, {"e4m3", &kE4M3}, {"e5m2", &kE5M2}};

class Numeric : public ::testing::TestWithParam<Named> {
 protected:
  const FloatFormat& format = *GetParam().format;
};
INSTANTIATE_TEST_SUITE_P(Formats, Numeric, ::testing::ValuesIn(kFormats),
                         [](const auto& p) { return p.param.name; });

TEST_P(Numeric, EveryNumberSurvivesDecodingAndEncoding) {
  for (std::uint32_t bits = 0; bits < 2 * format.sign_bit(); ++bits) {
    const float value = decode(format, bits);
    if (std::isnan(value)) {
      ASSERT_EQ(encode(format, value), format.nan) << bits;
    } else {
      ASSERT_EQ(encode(format, value), bits);
    }
  }
}

TEST_P(Numeric, EncodesTheNearestNumberAndTiesToEven) {
  for (std::uint32_t bits = 0; bits < format.largest_finite(); ++bits) {
    const float low = decode(format, bits);
    const float high = decode(format, bits + 1);
    const auto middle = static_cast<float>((static_cast<double>(low) + static_cast<double>(high)) / 2);
    ASSERT_LT(low, middle);
    ASSERT_LT(middle, high);
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(encode(format, middle), even) << bits;
    ASSERT_EQ(encode(format, -middle), even | format.sign_bit()) << bits;
    ASSERT_EQ(encode(format, std::nextafter(middle, low)), bits);
    ASSERT_EQ(encode(format, std::nextafter(middle, high)), bits + 1);
  }
}

TEST_P(Numeric, NumbersTooLargeBecomeInfinityOrTheLargestFinite) {
  const std::uint32_t beyond = format.has_infinity ? format.top_exponent() : format.largest_finite();
  const float largest = decode(format, format.largest_finite());
  const float ulp = largest - decode(format, format.largest_finite() - 1);
  EXPECT_EQ(encode(format, largest), format.largest_finite());
  EXPECT_EQ(encode(format, std::nextafter(largest + ulp / 2, 0.0f)), format.largest_finite());
  EXPECT_EQ(encode(format, largest + ulp / 2), beyond);
  EXPECT_EQ(encode(format, std::numeric_limits<float>::max()), beyond);
  EXPECT_EQ(encode(format, std::numeric_limits<float>::infinity()), beyond);
  EXPECT_EQ(encode(format, -std::numeric_limits<float>::infinity()), beyond | format.sign_bit());
}

}  // namespace
}  // namespace onehop
