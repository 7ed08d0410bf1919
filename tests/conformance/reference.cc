// SPDX-License-Identifier: Apache-2.0
#include "conformance/reference.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <type_traits>

#include "backend/cuda/algorithms/streaming/streaming.h"
#include "base/numeric.h"

namespace onehop::testing {
namespace {

// An element type as stored, and the type in which it is accumulated.
template <class T>
struct Native {
  using Stored = T;
  using Wide = T;
  static Wide widen(Stored x) { return x; }
  static Stored round(Wide x) {
    if constexpr (std::is_same_v<T, float>) return std::isnan(x) ? std::bit_cast<float>(kF32Nan) : x;
    if constexpr (std::is_same_v<T, double>) return std::isnan(x) ? std::bit_cast<double>(kF64Nan) : x;
    return x;
  }
};

template <class T, const FloatFormat& kFormat>
struct Narrow {
  using Stored = T;
  using Wide = float;
  static Wide widen(Stored x) { return decode(kFormat, x); }
  static Stored round(Wide x) { return static_cast<Stored>(encode(kFormat, x)); }
};

/// Calls `f` with the traits of `type`.
template <class F>
auto with_traits(DType type, F&& f) {
  switch (type) {
    case DType::f16:
      return f(Narrow<std::uint16_t, kF16>{});
    case DType::bf16:
      return f(Narrow<std::uint16_t, kBF16>{});
    case DType::f32:
      return f(Native<float>{});
    case DType::f64:
      return f(Native<double>{});
    case DType::e4m3:
      return f(Narrow<std::uint8_t, kE4M3>{});
    case DType::e5m2:
      return f(Narrow<std::uint8_t, kE5M2>{});
    case DType::i8:
      return f(Native<std::int8_t>{});
    case DType::u8:
      return f(Native<std::uint8_t>{});
    case DType::i32:
      return f(Native<std::int32_t>{});
    case DType::u32:
      return f(Native<std::uint32_t>{});
    case DType::i64:
      return f(Native<std::int64_t>{});
    case DType::u64:
      break;
  }
  return f(Native<std::uint64_t>{});
}

/// -0 is less than +0, and NaN wins.
template <class T>
T lesser(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return std::signbit(a) ? a : b;
  }
  return std::min(a, b);
}
template <class T>
T greater(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return std::signbit(a) ? b : a;
  }
  return std::max(a, b);
}

template <class T>
T combine(ReduceOp op, T a, T b) {
  if (op == ReduceOp::min) return lesser(a, b);
  if (op == ReduceOp::max) return greater(a, b);
  if constexpr (std::is_floating_point_v<T>) {
    return op == ReduceOp::prod ? a * b : a + b;
  } else {  // wraps
    const auto x = static_cast<std::uint64_t>(a);
    const auto y = static_cast<std::uint64_t>(b);
    return static_cast<T>(op == ReduceOp::prod ? x * y : x + y);
  }
}

template <class T>
T load(const std::byte* from, std::size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void append(Bytes& bytes, T value) {
  const auto* const raw = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), raw, raw + sizeof value);
}

template <class Traits>
constexpr bool kIsFloat = std::is_floating_point_v<typename Traits::Wide>;

/// The bits of f32 or f64 `value`, or of the nearest narrow float.
template <class Traits>
typename Traits::Stored float_of(double value) {
  return Traits::round(static_cast<typename Traits::Wide>(value));
}

}  // namespace

std::vector<Reduction> reductions_of(DType type) {
  std::vector<Reduction> all;
  for (int op = 0; op < static_cast<int>(ReduceOp::premul_sum); ++op) {
    all.push_back({.op = static_cast<ReduceOp>(op)});
  }
  const bool is_float = with_traits(type, []<class Traits>(Traits) { return kIsFloat<Traits>; });
  const bool is_signed =
      with_traits(type, []<class Traits>(Traits) { return std::is_signed_v<typename Traits::Wide>; });
  for (const double factor : {0.5, 3.0, 1.0 / 3, -1.0}) {
    const bool whole = factor == std::trunc(factor);
    if ((is_float || whole) && (is_signed || factor > 0)) all.push_back({ReduceOp::premul_sum, factor});
  }
  all.push_back({.op = ReduceOp::premul_sum, .weighted = true});
  return all;
}

Bytes factor_of_rank(DType type, std::size_t rank) {
  return with_traits(type, [&]<class Traits>(Traits) {
    Bytes factor;
    if constexpr (kIsFloat<Traits>) {
      append(factor, float_of<Traits>(rank % 2 == 0 ? 0.7 + static_cast<double>(rank) : -1.0 / 3));
    } else {
      append(factor,
             static_cast<typename Traits::Stored>(
                 std::is_signed_v<typename Traits::Wide> && rank % 2 != 0 ? -2 : 3 + static_cast<int>(rank)));
    }
    return factor;
  });
}

Bytes reduced(DType type, const Reduction& how, const std::vector<Bytes>& inputs) {
  if (inputs.size() == 1 && how.op != ReduceOp::premul_sum) return inputs.front();
  return with_traits(type, [&]<class Traits>(Traits) {
    using Stored = typename Traits::Stored;
    std::vector<Bytes> factors;
    for (std::size_t r = 0; r < inputs.size(); ++r) factors.push_back(factor_of_rank(type, r));
    const auto summand = [&](std::size_t r, std::size_t i) {
      const auto value = Traits::widen(load<Stored>(inputs[r].data(), i));
      if (!how.weighted) return value;
      return Traits::widen(
          Traits::round(combine(ReduceOp::prod, value, Traits::widen(load<Stored>(factors[r].data(), 0)))));
    };
    Bytes result;
    result.reserve(inputs[0].size());
    for (std::size_t i = 0; i < inputs[0].size() / sizeof(Stored); ++i) {
      auto total = summand(0, i);
      for (std::size_t r = 1; r < inputs.size(); ++r) total = combine(how.op, total, summand(r, i));
      using Wide = typename Traits::Wide;
      if (how.op == ReduceOp::avg) total = static_cast<Wide>(total / static_cast<Wide>(inputs.size()));
      if (how.op == ReduceOp::premul_sum) {
        total = combine(ReduceOp::prod, total, static_cast<Wide>(how.factor));
      }
      append(result, Traits::round(total));
    }
    return result;
  });
}

Bytes random_elements(DType type, std::size_t count, std::uint64_t seed) {
  const Bytes special = special_elements(type);
  std::mt19937_64 random(seed);
  return with_traits(type, [&]<class Traits>(Traits) {
    using Stored = typename Traits::Stored;
    Bytes result;
    result.reserve(count * sizeof(Stored));
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t bits = random();
      const std::uint64_t kind = bits % 32;
      Stored value;
      if (kind == 0) {
        value = load<Stored>(special.data(), bits / 32 % (special.size() / sizeof(Stored)));
      } else if (kind == 1 || !kIsFloat<Traits>) {
        const std::uint64_t raw = random();
        std::memcpy(&value, &raw, sizeof value);
      } else {
        value = float_of<Traits>(std::ldexp(static_cast<double>(static_cast<std::int32_t>(bits >> 32)), -29));
      }
      append(result, value);
    }
    // Words that streams escape, and those that travel as an escape.
    for (std::size_t i = 0; i + sizeof cuda::kEscapeKey <= result.size(); i += sizeof cuda::kEscapeKey) {
      const std::uint64_t bits = random();
      if (bits % 16 != 0) continue;
      const auto word = static_cast<std::uint32_t>(cuda::kEscapeKey ^ (bits / 16 % 2));
      std::memcpy(result.data() + i, &word, sizeof word);
    }
    return result;
  });
}

Bytes special_elements(DType type) {
  return with_traits(type, []<class Traits>(Traits) {
    using Stored = typename Traits::Stored;
    Bytes result;
    if constexpr (sizeof(Stored) == 1) {
      for (int i = 0; i < 256; ++i) append(result, static_cast<Stored>(i));
    } else if constexpr (kIsFloat<Traits>) {
      using Wide = typename Traits::Wide;
      const Wide max = std::numeric_limits<Wide>::max();
      const Wide min = std::numeric_limits<Wide>::min();
      const Wide tiny = std::numeric_limits<Wide>::denorm_min();
      const Wide inf = std::numeric_limits<Wide>::infinity();
      const Wide nan = std::numeric_limits<Wide>::quiet_NaN();
      for (const Wide x : {Wide(0),
                           Wide(1),
                           Wide(3),
                           Wide(0.1),
                           max,
                           max / 2,
                           min,
                           min / 2,
                           tiny,
                           inf,
                           nan,
                           Wide(65504),
                           Wide(65519),
                           Wide(65520),
                           Wide(0x1p-14),
                           Wide(0x1p-24),
                           Wide(0x1p-25),
                           Wide(0x1.8p-24),
                           Wide(0x1.01p0),
                           Wide(0x1.008p0),
                           Wide(0x1p-133),
                           Wide(0x1p-134),
                           Wide(2049),
                           Wide(16777217)}) {
        append(result, Traits::round(x));
        append(result, Traits::round(-x));
      }
      // A NaN with other bits than the canonical one.
      using Raw = std::conditional_t<sizeof(Stored) == 8, std::uint64_t,
                                     std::conditional_t<sizeof(Stored) == 4, std::uint32_t, std::uint16_t>>;
      append(result, static_cast<Raw>(~Raw{0}));
    } else {
      using Limits = std::numeric_limits<Stored>;
      for (const Stored x :
           {Stored{0}, Stored{1}, Stored{2}, Stored{3}, Stored{7}, static_cast<Stored>(-1),
            static_cast<Stored>(-2), static_cast<Stored>(-7), Limits::min(), Limits::max(),
            static_cast<Stored>(Limits::max() / 2), static_cast<Stored>(Limits::max() / 2 + 1)}) {
        append(result, x);
      }
    }
    return result;
  });
}

std::string element_text(DType type, const std::byte* elements, std::size_t i) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, elements + i * size_of(type), size_of(type));
  return fmt::format("{:#x}", bits);
}

Streams::Streams(int ranks, DType type, std::uint64_t seed) : type_(type), reductions_(reductions_of(type)) {
  for (int r = 0; r < ranks; ++r) {
    inputs_.push_back(random_elements(type, kPeriod, seed * 64 + static_cast<std::uint64_t>(r)));
  }
  for (const Reduction& how : reductions_) expected_.push_back(reduced(type, how, inputs_));
}

void Streams::input(int rank, std::size_t start, std::size_t count, std::byte* to) const {
  stretch(inputs_[static_cast<std::size_t>(rank)], start, count, to);
}

void Streams::expected(const Reduction& how, std::size_t start, std::size_t count, std::byte* to) const {
  const auto found = std::find(reductions_.begin(), reductions_.end(), how);
  if (found == reductions_.end()) throw std::logic_error("no such reduction in the streams");
  stretch(expected_[static_cast<std::size_t>(found - reductions_.begin())], start, count, to);
}

void Streams::stretch(const Bytes& period, std::size_t start, std::size_t count, std::byte* to) const {
  std::size_t at = start % kPeriod;
  while (count > 0) {
    const std::size_t length = std::min(count, kPeriod - at);
    std::memcpy(to, period.data() + at * size_of(type_), length * size_of(type_));
    to += length * size_of(type_);
    count -= length;
    at = 0;
  }
}

}  // namespace onehop::testing
