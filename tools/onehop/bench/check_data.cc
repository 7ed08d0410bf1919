// SPDX-License-Identifier: Apache-2.0
#include "bench/check_data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/element.h"

namespace onehop::cli {
namespace {

/// splitmix64 (Steele, Lea, Flood 2014) of a counter.
std::uint64_t random_bits(std::uint64_t seed, int rank, std::uint64_t index) {
  std::uint64_t x = seed + static_cast<std::uint64_t>(rank) * 0xd1342543de82ef95 + index * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// Raw bits of a float element. Assembled from its fields, so that no conversion rounds.
std::uint64_t float_input(const CheckData& data, const FloatFormat& format, int rank, std::uint64_t index) {
  const std::uint64_t random = random_bits(data.seed, rank, index);
  const std::uint64_t sign = random >> 63;
  std::uint64_t fraction = random & ((1ull << format.fraction_bits) - 1);
  int exponent = -static_cast<int>((random >> 56) & 3);  // 1/8 <= |x| < 2
  if (data.op == ReduceOp::prod) {
    // 1/2 <= |x| < 2 for eight ranks and 1 for the rest: the product stays within what 8 bits can hold.
    exponent = rank < 8 ? -static_cast<int>((random >> 56) & 1) : 0;
    if (rank >= 8) fraction = 0;
  }
  const auto biased = static_cast<std::uint64_t>(exponent + format.bias());
  return (sign << (format.exponent_bits + format.fraction_bits)) | (biased << format.fraction_bits) |
         fraction;
}

template <class T>
T int_input(const CheckData& data, int rank, std::uint64_t index) {
  const auto value = static_cast<T>(random_bits(data.seed, rank, index));
  return data.op == ReduceOp::avg ? static_cast<T>(value / static_cast<T>(data.ranks)) : value;
}

/// Integers wrap like those of the library.
template <class T>
T combined(ReduceOp op, T a, T b) {
  // Arithmetic modulo 2^64 and then modulo 2^bits is arithmetic modulo 2^bits.
  using Wide = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;
  switch (op) {
    case ReduceOp::prod:
      return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    default:
      return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
  }
}

/// Exact.
template <class T>
T int_reference(const CheckData& data, std::uint64_t index) {
  T value = int_input<T>(data, 0, index);
  for (int rank = 1; rank < data.ranks; ++rank)
    value = combined(*data.op, value, int_input<T>(data, rank, index));
  if (data.op == ReduceOp::avg) return static_cast<T>(value / static_cast<T>(data.ranks));
  if (data.op == ReduceOp::premul_sum) return combined(ReduceOp::prod, value, static_cast<T>(data.factor));
  return value;
}

/// Calls `f` with a null pointer of the unsigned type that has the size of an element.
template <class F>
auto with_raw_type(DType type, const F& f) {
  switch (size_of(type)) {
    case 1:
      return f(static_cast<std::uint8_t*>(nullptr));
    case 2:
      return f(static_cast<std::uint16_t*>(nullptr));
    case 4:
      return f(static_cast<std::uint32_t*>(nullptr));
    default:
      return f(static_cast<std::uint64_t*>(nullptr));
  }
}

/// The same with the integer type.
template <class F>
auto with_int_type(DType type, const F& f) {
  return with_raw_type(type, [&]<class Raw>(Raw* raw) {
    return is_signed(type) ? f(static_cast<std::make_signed_t<Raw>*>(nullptr)) : f(raw);
  });
}

/// Compares integers with what `reference` says of their index. `format` is for both.
template <class T, class Reference>
std::optional<WrongElement> find_other(const CheckData& data, const void* result, std::size_t count,
                                       fmt::format_string<T> format, const Reference& reference) {
  for (std::size_t i = 0; i < count; ++i) {
    const T expected = reference(data.first + i);
    const T got = static_cast<const T*>(result)[i];
    if (got != expected)
      return WrongElement{data.first + i, fmt::format(format, T{expected}), fmt::format(format, T{got})};
  }
  return std::nullopt;
}

/// The values of all 2^8 or 2^16 bit patterns. Decoding 64 MiB one by one would take longer than the benchmark.
std::vector<double> decode_table(const FloatFormat& format) {
  std::vector<double> table(std::size_t{2} * format.sign_bit());
  for (std::uint32_t bits = 0; bits < table.size(); ++bits) table[bits] = decode(format, bits);
  return table;
}

template <class Raw, class Decode>
std::optional<WrongElement> find_wrong_float(const CheckData& data, const FloatFormat& format,
                                             const Raw* result, std::size_t count, const Decode& value_of) {
  const double accumulate = data.type == DType::f64 ? 0x1p-53 : 0x1p-24;
  const double round = std::ldexp(1.0, -format.fraction_bits - 1);
  const double half_subnormal = std::ldexp(1.0, -format.bias() - format.fraction_bits);
  // n - 1 operations combine; avg divides; premul_sum multiplies by a rounded factor.
  const int operations = data.op == ReduceOp::premul_sum ? data.ranks + 1 : data.ranks;
  const bool exact = data.op == ReduceOp::min || data.op == ReduceOp::max;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t index = data.first + i;
    double expected = value_of(static_cast<Raw>(float_input(data, format, 0, index)));
    double magnitude = std::fabs(expected);
    for (int rank = 1; rank < data.ranks; ++rank) {
      const double next = value_of(static_cast<Raw>(float_input(data, format, rank, index)));
      expected = combined(*data.op, expected, next);
      magnitude = data.op == ReduceOp::prod ? std::fabs(expected) : magnitude + std::fabs(next);
    }
    if (data.op == ReduceOp::avg) {
      expected /= data.ranks;
      magnitude /= data.ranks;
    }
    if (data.op == ReduceOp::premul_sum) {
      expected *= data.factor;
      magnitude *= std::fabs(data.factor);
    }
    const double rounded = std::fabs(expected) + (data.roundings - 1) * magnitude;
    const double tolerance = exact ? 0
                                   : operations * accumulate * magnitude + round * 1.0001 * rounded +
                                         data.roundings * half_subnormal;
    const double got = value_of(result[i]);
    if (!(std::fabs(got - expected) <= tolerance)) {  // a NaN is wrong too
      return WrongElement{index, fmt::format("{:.9g} +- {:.2g}", expected, tolerance),
                          fmt::format("{:.9g}", got)};
    }
  }
  return std::nullopt;
}

void fill_part(const CheckData& data, int rank, void* out, std::size_t count) {
  const auto fill = [&]<class T>(T*, const auto& value_at) {
    for (std::size_t i = 0; i < count; ++i)
      static_cast<T*>(out)[i] = static_cast<T>(value_at(data.first + i));
  };
  const auto format = float_format(data.type);
  if (data.op && !format) {
    return with_int_type(data.type, [&]<class T>(T* type) {
      fill(type, [&](std::uint64_t index) { return int_input<T>(data, rank, index); });
    });
  }
  with_raw_type(data.type, [&](auto* type) {
    fill(type, [&](std::uint64_t index) {
      return data.op ? float_input(data, *format, rank, index) : random_bits(data.seed, rank, index);
    });
  });
}

std::optional<WrongElement> find_wrong_in_part(const CheckData& data, const void* result, std::size_t count) {
  if (!data.op) {
    return with_raw_type(data.type, [&]<class Raw>(Raw*) {
      return find_other<Raw>(data, result, count, "{:#x}", [&](std::uint64_t index) {
        return static_cast<Raw>(random_bits(data.seed, data.source, index));
      });
    });
  }
  if (const auto format = float_format(data.type)) {
    return with_raw_type(data.type, [&]<class Raw>(Raw*) {
      const std::vector<double> table = sizeof(Raw) <= 2 ? decode_table(*format) : std::vector<double>{};
      const auto value_of = [&](Raw bits) -> double {
        if constexpr (sizeof(Raw) == 8) return std::bit_cast<double>(bits);
        if constexpr (sizeof(Raw) == 4) return std::bit_cast<float>(bits);
        if constexpr (sizeof(Raw) <= 2) return table[bits];
      };
      return find_wrong_float(data, *format, static_cast<const Raw*>(result), count, value_of);
    });
  }
  return with_int_type(data.type, [&]<class T>(T*) {
    return find_other<T>(data, result, count, "{}",
                         [&](std::uint64_t index) { return int_reference<T>(data, index); });
  });
}

/// Calls `part(first, count)` for the parts of 0..count, each on its own thread.
template <class Part>
void in_parts(std::size_t count, int threads, const Part& part) {
  // Fewer elements are not worth a thread.
  constexpr std::size_t kLeast = std::size_t{1} << 16;
  const std::size_t parts = std::clamp(count / kLeast, std::size_t{1}, static_cast<std::size_t>(threads));
  const std::size_t each = (count + parts - 1) / parts;
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < parts; ++i) {
    const std::size_t first = std::min(count, i * each);
    others.emplace_back(part, first, std::min(each, count - first));
  }
  part(0, std::min(each, count));
  for (std::thread& other : others) other.join();
}

CheckData from(const CheckData& data, std::size_t first) {
  CheckData part = data;
  part.first += first;
  return part;
}

}  // namespace

void fill_input(const CheckData& data, int rank, void* out, std::size_t count, int threads) {
  in_parts(count, threads, [&](std::size_t first, std::size_t part) {
    fill_part(from(data, first), rank, static_cast<std::byte*>(out) + first * size_of(data.type), part);
  });
}

std::optional<WrongElement> find_wrong(const CheckData& data, const void* result, std::size_t count,
                                       int threads) {
  std::mutex mutex;
  std::optional<WrongElement> found;
  in_parts(count, threads, [&](std::size_t first, std::size_t part) {
    const auto* const at = static_cast<const std::byte*>(result) + first * size_of(data.type);
    auto wrong = find_wrong_in_part(from(data, first), at, part);
    if (!wrong) return;
    const std::lock_guard lock(mutex);
    if (!found || wrong->index < found->index) found = std::move(wrong);
  });
  return found;
}

std::uint64_t hash_bytes(const void* bytes, std::size_t size) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  std::uint64_t hash = size;
  for (; size >= 8; size -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    hash = std::rotl((hash ^ word) * 0x9fb21c651e98df25, 29);
  }
  for (; size > 0; --size, ++at) hash = std::rotl((hash ^ *at) * 0x9fb21c651e98df25, 29);
  return hash;
}

}  // namespace onehop::cli
