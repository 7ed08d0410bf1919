// SPDX-License-Identifier: Apache-2.0
#include "backend/host/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "onehop/error.h"

#include "base/numeric.h"
#include "support/sanitizers.h"

namespace onehop::host {
namespace {

using Bytes = std::vector<unsigned char>;

/// The instruction sets that this CPU can run; at least the baseline.
std::vector<Isa> isas() {
  std::vector<Isa> found;
  for (const char* name : {"baseline", "avx2", "avx512"}) {
    try {
      found.push_back(find_isa(name));
    } catch (const Error&) {
      EXPECT_STRNE(name, "baseline");
    }
  }
  return found;
}

// ---- The reference: one element at a time ----------------------------------------------------------------

template <class T>
T one_nan(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return std::isnan(x) ? std::bit_cast<float>(kF32Nan) : x;
  } else if constexpr (std::is_same_v<T, double>) {
    return std::isnan(x) ? std::bit_cast<double>(kF64Nan) : x;
  } else {
    return x;
  }
}

template <class T>
T lesser(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return std::signbit(a) ? a : b;
  }
  return a < b ? a : b;
}

template <class T>
T greater(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a < b ? b : a;
}

template <class T>
T combine(ReduceOp op, T a, T b) {
  if (op == ReduceOp::min) return lesser(a, b);
  if (op == ReduceOp::max) return greater(a, b);
  if constexpr (std::is_floating_point_v<T>) {
    return op == ReduceOp::prod ? a * b : a + b;
  } else {
    const auto wide_a = static_cast<std::uint64_t>(a);
    const auto wide_b = static_cast<std::uint64_t>(b);
    return static_cast<T>(op == ReduceOp::prod ? wide_a * wide_b : wide_a + wide_b);
  }
}

/// A reduction and its factor.
struct Operation {
  ReduceOp op = ReduceOp::sum;
  double factor = 1;
};

template <class T>
T reduce_values(const Operation& how, const std::vector<T>& values) {
  T acc = values[0];
  for (std::size_t k = 1; k < values.size(); ++k) acc = combine(how.op, acc, values[k]);
  if (how.op == ReduceOp::avg) acc = static_cast<T>(acc / static_cast<T>(values.size()));
  if (how.op == ReduceOp::premul_sum) acc = combine(ReduceOp::prod, acc, static_cast<T>(how.factor));
  return one_nan(acc);
}

const FloatFormat* format_of(DType type) {
  switch (type) {
    case DType::f16:
      return &kF16;
    case DType::bf16:
      return &kBF16;
    case DType::e4m3:
      return &kE4M3;
    case DType::e5m2:
      return &kE5M2;
    default:
      return nullptr;
  }
}

/// Reduces element i of every source into element i of dst.
template <class T>
void reference_native(const Operation& how, Bytes& dst, const std::vector<Bytes>& src, std::size_t i) {
  std::vector<T> values(src.size());
  for (std::size_t k = 0; k < src.size(); ++k) std::memcpy(&values[k], &src[k][i * sizeof(T)], sizeof(T));
  const T result = reduce_values(how, values);
  std::memcpy(&dst[i * sizeof(T)], &result, sizeof(T));
}

template <class T>
void reference_narrow(const FloatFormat& format, const Operation& how, Bytes& dst,
                      const std::vector<Bytes>& src, std::size_t i) {
  std::vector<float> values(src.size());
  for (std::size_t k = 0; k < src.size(); ++k) {
    T bits;
    std::memcpy(&bits, &src[k][i * sizeof(T)], sizeof(T));
    values[k] = decode(format, bits);
  }
  const auto result = static_cast<T>(encode(format, reduce_values(how, values)));
  std::memcpy(&dst[i * sizeof(T)], &result, sizeof(T));
}

Bytes reference(DType type, const Operation& how, const std::vector<Bytes>& src) {
  Bytes dst(src[0].size());
  for (std::size_t i = 0; i < dst.size() / size_of(type); ++i) {
    switch (type) {
      case DType::f16:
      case DType::bf16:
        reference_narrow<std::uint16_t>(*format_of(type), how, dst, src, i);
        break;
      case DType::e4m3:
      case DType::e5m2:
        reference_narrow<std::uint8_t>(*format_of(type), how, dst, src, i);
        break;
      case DType::f32:
        reference_native<float>(how, dst, src, i);
        break;
      case DType::f64:
        reference_native<double>(how, dst, src, i);
        break;
      case DType::i8:
        reference_native<std::int8_t>(how, dst, src, i);
        break;
      case DType::u8:
        reference_native<std::uint8_t>(how, dst, src, i);
        break;
      case DType::i32:
        reference_native<std::int32_t>(how, dst, src, i);
        break;
      case DType::u32:
        reference_native<std::uint32_t>(how, dst, src, i);
        break;
      case DType::i64:
        reference_native<std::int64_t>(how, dst, src, i);
        break;
      case DType::u64:
        reference_native<std::uint64_t>(how, dst, src, i);
        break;
    }
  }
  return dst;
}

// ---- Inputs ----------------------------------------------------------------------------------------------

template <class T>
void put(Bytes& bytes, std::size_t i, T value) {
  std::memcpy(&bytes[i * sizeof(T)], &value, sizeof(T));
}

void put_float(DType type, Bytes& bytes, std::size_t i, double value) {
  const FloatFormat* format = format_of(type);
  if (type == DType::f64) {
    put(bytes, i, value);
  } else if (type == DType::f32) {
    put(bytes, i, static_cast<float>(value));
  } else if (size_of(type) == 2) {
    put(bytes, i, encode(*format, static_cast<float>(value)));
  } else {
    put(bytes, i, static_cast<std::uint8_t>(encode(*format, static_cast<float>(value))));
  }
}

/// Random bits; for floats mostly numbers of ordinary size and some special ones. With random bits alone,
/// reductions of many sources would be NaN or infinite almost everywhere.
Bytes random_values(DType type, std::size_t count, std::mt19937_64& random) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr std::array<double, 16> kSpecial = {0.0,       -0.0,      kInfinity, -kInfinity, kNan,     -kNan,
                                               1.0,       -1.0,      448.,      57344.0,    -65504.0, 0x1p-9,
                                               0x1.8p-24, -0x1p-133, 3.4e38,    0x1p-149};
  Bytes bytes(count * size_of(type));
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  const bool is_float = type == DType::f32 || type == DType::f64 || format_of(type) != nullptr;
  if (!is_float) return bytes;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t r = random();
    if (r % 8 == 0) continue;
    if (r % 8 == 1) {
      put_float(type, bytes, i, kSpecial[r / 8 % kSpecial.size()]);
    } else {
      put_float(type, bytes, i, std::ldexp(static_cast<double>(static_cast<std::int32_t>(r >> 32)), -30));
    }
  }
  return bytes;
}

/// Bytes at a chosen distance from a 64-byte boundary, with guard bytes on both sides.
class Guarded {
 public:
  Guarded(const Bytes& content, std::size_t offset) : size_(content.size()) {
    storage_.assign(64 + kGuardBytes + offset + size_ + kGuardBytes, kGuard);
    const auto at = reinterpret_cast<std::uintptr_t>(storage_.data());
    begin_ = (64 - at % 64) % 64 + kGuardBytes + offset;
    if (size_ != 0) std::memcpy(data(), content.data(), size_);
  }
  [[nodiscard]] unsigned char* data() { return storage_.data() + begin_; }
  [[nodiscard]] bool holds(const Bytes& expected) const {
    for (std::size_t i = 0; i < storage_.size(); ++i) {
      const bool inside = i >= begin_ && i < begin_ + size_;
      if (storage_[i] != (inside ? expected[i - begin_] : kGuard)) return false;
    }
    return true;
  }

 private:
  static constexpr unsigned char kGuard = 0xa5;
  static constexpr std::size_t kGuardBytes = 64;
  Bytes storage_;
  std::size_t begin_ = 0;
  std::size_t size_;
};

struct Sources {
  std::vector<Guarded> buffers;
  std::vector<const void*> pointers;
};

/// Places every source at a different offset, in whole elements.
Sources place(DType type, const std::vector<Bytes>& content) {
  Sources sources;
  sources.buffers.reserve(content.size());
  for (std::size_t k = 0; k < content.size(); ++k) {
    sources.buffers.emplace_back(content[k], (k * 3 + 1) % 9 * size_of(type));
    sources.pointers.push_back(sources.buffers.back().data());
  }
  return sources;
}

bool hold(const Sources& sources, const std::vector<Bytes>& expected) {
  for (std::size_t k = 0; k < expected.size(); ++k) {
    if (!sources.buffers[k].holds(expected[k])) return false;
  }
  return true;
}

// ---- Reductions ------------------------------------------------------------------------------------------

constexpr std::size_t kCounts[] = {0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 1000, 4099};
constexpr int kSourceCounts[] = {1, 2, 3, 4, 5, 8, 17};

class HostReduce : public ::testing::TestWithParam<int> {
 protected:
  const DType type = static_cast<DType>(GetParam());

  /// Every reduction, with several factors for premul_sum.
  [[nodiscard]] std::vector<Operation> operations() const {
    std::vector<Operation> all;
    for (int op = 0; op < static_cast<int>(ReduceOp::premul_sum); ++op) {
      all.push_back({.op = static_cast<ReduceOp>(op)});
    }
    for (const double factor : {0.5, 3.0, 1.0 / 3, -1.0, -0.0, std::numeric_limits<double>::infinity(),
                                std::numeric_limits<double>::quiet_NaN()}) {
      if (can_scale(type, factor)) all.push_back({.op = ReduceOp::premul_sum, .factor = factor});
    }
    return all;
  }

  /// Calls f(op, scale, sources, their reduction, description) for every operation, number of sources and
  /// count.
  template <class F>
  void for_every_case(F&& f) {
    std::mt19937_64 random(static_cast<std::uint64_t>(GetParam()));
    for (const int n : kSourceCounts) {
      for (const std::size_t count : kCounts) {
        std::vector<Bytes> src;
        for (int k = 0; k < n; ++k) src.push_back(random_values(type, count, random));
        for (const Operation& how : operations()) {
          if (testing::kSanitized && random() % 4 != 0) continue;
          f(how.op, scale_of(type, how.op, how.factor, n), src, reference(type, how, src),
            std::string(to_string(how.op)) + " (factor " + std::to_string(how.factor) + ") of " +
                std::to_string(n) + " x " + std::to_string(count));
          if (HasFatalFailure()) return;
        }
      }
    }
  }

  [[nodiscard]] const ReduceKernel& kernel(const Isa& isa, ReduceOp op) const {
    return isa.kernels->of[static_cast<std::size_t>(type)].reduce[kernel_op(op)];
  }
};
INSTANTIATE_TEST_SUITE_P(Types, HostReduce, ::testing::Range(0, kDTypeCount),
                         [](const auto& p) { return std::string(to_string(static_cast<DType>(p.param))); });

TEST_P(HostReduce, EveryInstructionSetGivesTheBitsOfTheReference) {
  for_every_case([this](ReduceOp op, const Scale& scale, const std::vector<Bytes>& src, const Bytes& expected,
                        const std::string& what) {
    Sources sources = place(type, src);
    for (const Isa& isa : isas()) {
      for (const std::size_t offset : {std::size_t{0}, size_of(type)}) {
        Guarded dst(Bytes(expected.size(), 0xcc), offset);
        kernel(isa, op).one(dst.data(), sources.pointers.data(), static_cast<int>(src.size()),
                            expected.size() / size_of(type), scale);
        ASSERT_TRUE(dst.holds(expected)) << isa.name << " " << what << " at +" << offset;
        ASSERT_TRUE(hold(sources, src)) << isa.name << " " << what << " changed a source";
      }
    }
  });
}

TEST_P(HostReduce, TheOutputMayBeAnySource) {
  for_every_case([this](ReduceOp op, const Scale& scale, const std::vector<Bytes>& src, const Bytes& expected,
                        const std::string& what) {
    for (const Isa& isa : isas()) {
      for (std::size_t k = 0; k < src.size(); ++k) {
        Sources sources = place(type, src);
        kernel(isa, op).one(sources.buffers[k].data(), sources.pointers.data(), static_cast<int>(src.size()),
                            expected.size() / size_of(type), scale);
        std::vector<Bytes> after = src;
        after[k] = expected;
        ASSERT_TRUE(hold(sources, after)) << isa.name << " " << what << " onto source " << k;
      }
    }
  });
}

TEST_P(HostReduce, TheSecondOutputIsTheSameAndMayBeASourceToo) {
  for_every_case([this](ReduceOp op, const Scale& scale, const std::vector<Bytes>& src, const Bytes& expected,
                        const std::string& what) {
    for (const Isa& isa : isas()) {
      Sources sources = place(type, src);
      Guarded dst(Bytes(expected.size(), 0xcc), size_of(type));
      kernel(isa, op).two(dst.data(), sources.buffers.back().data(), sources.pointers.data(),
                          static_cast<int>(src.size()), expected.size() / size_of(type), scale);
      std::vector<Bytes> after = src;
      after.back() = expected;
      ASSERT_TRUE(dst.holds(expected)) << isa.name << " " << what;
      ASSERT_TRUE(hold(sources, after)) << isa.name << " " << what;
    }
  });
}

TEST_P(HostReduce, TakesAsManySourcesAsThereMayBeRanks) {
  std::mt19937_64 random(2);
  std::vector<Bytes> src;
  for (int k = 0; k < kMaxHostRanks; ++k) src.push_back(random_values(type, 300, random));
  const Bytes expected = reference(type, {.op = ReduceOp::max}, src);
  for (const Isa& isa : isas()) {
    Sources sources = place(type, src);
    Guarded dst(Bytes(expected.size(), 0xcc), 0);
    kernel(isa, ReduceOp::max).one(dst.data(), sources.pointers.data(), kMaxHostRanks, 300, {});
    ASSERT_TRUE(dst.holds(expected)) << isa.name;
  }
}

TEST(HostReduceValues, MinAndMaxOrderZerosAndPropagateNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::array<float, 6> a = {-0.0f, 0.0f, nan, 1.0f, 0.0f, -0.0f};
  const std::array<float, 6> b = {0.0f, -0.0f, 1.0f, nan, 0.0f, -0.0f};
  const void* src[] = {a.data(), b.data()};
  std::array<float, 6> result{};
  const auto bits = [&] { return std::bit_cast<std::array<std::uint32_t, 6>>(result); };
  constexpr std::uint32_t kMinusZero = 0x80000000;
  for (const Isa& isa : isas()) {
    isa.kernels->of[static_cast<int>(DType::f32)].reduce[static_cast<int>(ReduceOp::min)].one(result.data(),
                                                                                              src, 2, 6, {});
    EXPECT_THAT(bits(), ::testing::ElementsAre(kMinusZero, kMinusZero, kF32Nan, kF32Nan, 0, kMinusZero))
        << isa.name;
    isa.kernels->of[static_cast<int>(DType::f32)].reduce[static_cast<int>(ReduceOp::max)].one(result.data(),
                                                                                              src, 2, 6, {});
    EXPECT_THAT(bits(), ::testing::ElementsAre(0, 0, kF32Nan, kF32Nan, 0, kMinusZero)) << isa.name;
  }
}

TEST(HostReduceValues, HalvesAreRoundedOnceAtTheEnd) {
  // 2048 + 1 + 1 is 2050 in f32; rounding to f16 after each addition would stay at 2048.
  const std::array<std::uint16_t, 3> values = {encode(kF16, 2048), encode(kF16, 1), encode(kF16, 1)};
  const void* src[] = {&values[0], &values[1], &values[2]};
  std::uint16_t result = 0;
  reduce_function(DType::f16, ReduceOp::sum)(&result, src, 3, 1, {});
  EXPECT_EQ(decode(kF16, result), 2050.0f);
}

TEST(HostReduceValues, IntegersWrapAndAveragesTruncateTowardsZero) {
  const std::array<std::int8_t, 4> a = {127, -7, 7, -128};
  const std::array<std::int8_t, 4> b = {1, 0, 0, -1};
  const void* src[] = {a.data(), b.data()};
  std::array<std::int8_t, 4> result{};
  reduce_function(DType::i8, ReduceOp::sum)(result.data(), src, 2, 4, {});
  EXPECT_THAT(result, ::testing::ElementsAre(-128, -7, 7, 127));
  reduce_function(DType::i8, ReduceOp::avg)(result.data(), src, 2, 4,
                                            scale_of(DType::i8, ReduceOp::avg, 1, 2));
  EXPECT_THAT(result, ::testing::ElementsAre(-64, -3, 3, 63));
  reduce_function(DType::i8, ReduceOp::premul_sum)(result.data(), src, 2, 4,
                                                   scale_of(DType::i8, ReduceOp::premul_sum, -20, 2));
  EXPECT_THAT(result, ::testing::ElementsAre(0, -116, 116, 20));
}

TEST(HostReduceValues, APremultipliedSumIsScaledBeforeItIsRounded) {
  // The sum exceeds the type's finite range, but half of it does not.
  std::uint16_t result = 0;
  const std::array<std::uint16_t, 2> large = {encode(kF16, 65504), encode(kF16, 65504)};
  const void* two[] = {&large[0], &large[1]};
  reduce_function(DType::f16, ReduceOp::premul_sum)(&result, two, 2, 1,
                                                    scale_of(DType::f16, ReduceOp::premul_sum, 0.5, 2));
  EXPECT_EQ(decode(kF16, result), 65504.0f);
}

// ---- Conversions -----------------------------------------------------------------------------------------

class HostConvert : public ::testing::TestWithParam<int> {
 protected:
  const DType type = static_cast<DType>(GetParam());
  const FloatFormat& format = *format_of(type);

  [[nodiscard]] Bytes pack(const std::vector<std::uint32_t>& values) const {
    Bytes bytes(values.size() * size_of(type));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (size_of(type) == 1) {
        put(bytes, i, static_cast<std::uint8_t>(values[i]));
      } else {
        put(bytes, i, static_cast<std::uint16_t>(values[i]));
      }
    }
    return bytes;
  }

  void expect_encoding(const std::vector<float>& values) const {
    std::vector<std::uint32_t> expected(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) expected[i] = encode(format, values[i]);
    const Bytes packed = pack(expected);
    for (const Isa& isa : isas()) {
      Bytes result(packed.size());
      isa.kernels->of[static_cast<std::size_t>(type)].convert.encode(result.data(), values.data(),
                                                                     values.size());
      for (std::size_t i = 0; i < packed.size(); ++i) {
        ASSERT_EQ(result[i], packed[i])
            << isa.name << ": byte " << i % size_of(type) << " of " << values[i / size_of(type)] << " (bits "
            << std::bit_cast<std::uint32_t>(values[i / size_of(type)]) << ")";
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Formats, HostConvert,
                         ::testing::Values(static_cast<int>(DType::f16), static_cast<int>(DType::bf16),
                                           static_cast<int>(DType::e4m3), static_cast<int>(DType::e5m2)),
                         [](const auto& p) { return std::string(to_string(static_cast<DType>(p.param))); });

TEST_P(HostConvert, DecodesEveryValue) {
  std::vector<std::uint32_t> all(2 * format.sign_bit());
  for (std::uint32_t bits = 0; bits < all.size(); ++bits) all[bits] = bits;
  const Bytes packed = pack(all);
  for (const Isa& isa : isas()) {
    std::vector<float> result(all.size());
    isa.kernels->of[static_cast<std::size_t>(type)].convert.decode(result.data(), packed.data(), all.size());
    for (const std::uint32_t bits : all) {
      const float expected = decode(format, bits);
      if (std::isnan(expected)) {  // payloads survive until the result is encoded
        ASSERT_TRUE(std::isnan(result[bits])) << isa.name << " " << bits;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(result[bits]), std::bit_cast<std::uint32_t>(expected))
            << isa.name << " " << bits;
      }
    }
  }
}

TEST_P(HostConvert, EncodesEveryRoundingBoundaryAndItsNeighbors) {
  std::vector<float> values;
  for (std::uint32_t p = 0; p <= format.largest_finite(); ++p) {
    const double low = decode(format, p);
    // Above the largest finite number the rounding boundary is where it would be if the format continued.
    const double high = p < format.largest_finite() ? decode(format, p + 1) : 2 * low - decode(format, p - 1);
    for (const double exact : {low, (low + high) / 2}) {
      const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(exact));
      for (const std::uint32_t near : {bits == 0 ? 0 : bits - 1, bits, bits + 1}) {
        values.push_back(std::bit_cast<float>(near));
        values.push_back(std::bit_cast<float>(near | 0x80000000u));
      }
    }
  }
  expect_encoding(values);
}

TEST_P(HostConvert, EncodesASweepOfAllFloatsAndTheSpecialOnes) {
  // A prime stride: every exponent, 4096 values of each, with all kinds of low bits.
  constexpr std::uint64_t kStride = 2039;
  std::vector<float> values;
  for (std::uint64_t bits = 0; bits < 1ull << 32; bits += kStride) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (const std::uint32_t bits :
       {0u, 1u, 0x007fffffu, 0x00800000u, 0x7f7fffffu, 0x7f800000u, 0x7f800001u, 0x7fc00000u, 0x7fffffffu}) {
    values.push_back(std::bit_cast<float>(bits));
    values.push_back(std::bit_cast<float>(bits | 0x80000000u));
  }
  expect_encoding(values);
}

// ---- Choice of the instruction set -----------------------------------------------------------------------

TEST(HostIsa, AnUnknownNameIsRefusedWithTheOnesThatWork) {
  try {
    (void)find_isa("sse9");
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(e.message(), ::testing::AllOf(::testing::HasSubstr("ONEHOP_HOST_ISA='sse9'"),
                                              ::testing::HasSubstr("baseline")));
  }
}

TEST(HostIsa, TheBestIsTheDefault) {
  EXPECT_EQ(find_isa("").name, isas().back().name);
}

TEST(HostIsa, EachHasKernelsForEveryType) {
  for (const Isa& isa : isas()) EXPECT_EQ(isa.kernels->types, kDTypeCount) << isa.name;
}

TEST(HostIsaDeathTest, TheEnvironmentChooses) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";  // starts a new process, which has not chosen yet
  EXPECT_EXIT(
      {
        ::setenv("ONEHOP_HOST_ISA", "baseline", 1);
        const bool chosen = isa_name() == "baseline" && reduce_function(DType::f32, ReduceOp::sum) ==
                                                            baseline::kKernels.of[2].reduce[0].one;
        std::_Exit(chosen ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(HostReduceValues, NumbersThatAreNoTypeOrOperationAreRefused) {
  EXPECT_THROW((void)reduce_function(static_cast<DType>(kDTypeCount), ReduceOp::sum), Error);
  EXPECT_THROW((void)reduce2_function(DType::f32, static_cast<ReduceOp>(kReduceOpCount)), Error);
}

}  // namespace
}  // namespace onehop::host
