// What the stress program computes: inputs that a hash makes up, and what reductions make of them, exactly.
// For the host and, as constexpr functions, for kernels.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "onehop/types.h"

namespace onehop::testing {

/// One all-reduce. It may be the next link of a chain: its input is then the output of the one before, the
/// same on all ranks. Offsets are those of this rank; all else is the same everywhere.
struct StressOp {
  std::uint32_t in = 0;   ///< bytes from the begin of the arena
  std::uint32_t out = 0;  ///< `in`: in place
  std::uint32_t count = 0;
  std::uint32_t key = 0;  ///< of the chain's first input
  std::uint32_t ops = 0;  ///< the reductions of the chain so far, 4 bits each, the first one lowest
  DType type = DType::f32;
  std::uint8_t depth = 1;      ///< how many these are
  bool checked = true;         ///< no: the next one overwrites it, in place
  std::uint8_t algorithm = 0;  ///< forced, or Algorithm::none
};

inline constexpr int kMaxStressOps = 48;  ///< per batch
inline constexpr int kMaxStressChain = 8;

constexpr ReduceOp reduction(const StressOp& op, int link) {
  return static_cast<ReduceOp>(op.ops >> (4 * link) & 15);
}

constexpr bool is_float(DType type) {
  return type <= DType::e5m2;
}
constexpr unsigned element_bytes(DType type) {
  constexpr unsigned kBytes[kDTypeCount] = {2, 2, 4, 8, 1, 1, 1, 1, 4, 4, 8, 8};
  return kBytes[static_cast<int>(type)];
}

/// Values are computed as 64-bit numbers: those of floats are small enough to be exact in every step.
constexpr std::int64_t wrapped(DType type, std::uint64_t x) {
  switch (type) {
    case DType::i8:
      return static_cast<std::int8_t>(x);
    case DType::u8:
      return static_cast<std::uint8_t>(x);
    case DType::i32:
      return static_cast<std::int32_t>(x);
    case DType::u32:
      return static_cast<std::uint32_t>(x);
    default:
      return static_cast<std::int64_t>(x);
  }
}

constexpr std::int64_t combined(DType type, ReduceOp op, std::int64_t a, std::int64_t b) {
  const auto x = static_cast<std::uint64_t>(a);
  const auto y = static_cast<std::uint64_t>(b);
  const bool less = type == DType::u64 ? x < y : a < b;
  switch (op) {
    case ReduceOp::prod:
      return wrapped(type, x * y);
    case ReduceOp::min:
      return less ? a : b;
    case ReduceOp::max:
      return less ? b : a;
    default:
      return wrapped(type, x + y);
  }
}

constexpr std::int64_t divided(DType type, std::int64_t x, int ranks) {
  if (type == DType::u64)
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(x) / static_cast<std::uint64_t>(ranks));
  return x / ranks;
}

/// 64 random bits for one element of one rank.
constexpr std::uint64_t stress_bits(std::uint32_t key, std::uint32_t round, int rank, std::uint32_t i) {
  std::uint64_t x = std::uint64_t{key} << 32 | i;
  x ^= (std::uint64_t{round} << 4 | static_cast<unsigned>(rank)) * 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

/// Element i of what rank `rank` of `ranks` puts into a chain that begins with `op`. Integers: anything.
/// Floats: integers of so few bits that no sum of 8 ranks is rounded, multiples of `ranks` where an average
/// is to be exact; products of 1 and 2.
constexpr std::int64_t stress_input(const StressOp& op, std::uint32_t round, int rank, int ranks,
                                    std::uint32_t i) {
  const std::uint64_t bits = stress_bits(op.key, round, rank, i);
  if (!is_float(op.type)) return wrapped(op.type, bits);
  const ReduceOp first = reduction(op, 0);
  if (first == ReduceOp::prod) {
    const std::int64_t size = 1 + static_cast<std::int64_t>(bits >> 62 & 1);
    return bits >> 63 != 0 ? -size : size;
  }
  constexpr int kBits[] = {9, 6, 18, 41, 2, 1};  // by type
  const int width = kBits[static_cast<int>(op.type)];
  const std::int64_t small =
      static_cast<std::int64_t>(bits >> (64 - width)) - (std::int64_t{1} << (width - 1));
  return first == ReduceOp::avg ? small * ranks : small;
}

/// Element i of `op`'s result.
constexpr std::int64_t stress_result(const StressOp& op, std::uint32_t round, int ranks, std::uint32_t i) {
  std::int64_t x = 0;
  for (int link = 0; link < op.depth; ++link) {
    const ReduceOp how = reduction(op, link);
    std::int64_t total = link == 0 ? stress_input(op, round, 0, ranks, i) : x;
    for (int r = 1; r < ranks; ++r)
      total = combined(op.type, how, total, link == 0 ? stress_input(op, round, r, ranks, i) : x);
    x = how == ReduceOp::avg ? divided(op.type, total, ranks) : total;
  }
  return x;
}

/// A number that the format holds exactly, as the format's bits. Its exponent needs no bounds here.
constexpr std::uint64_t small_float_bits(std::int64_t x, int mantissa, int bias, int width) {
  const auto whole = std::bit_cast<std::uint32_t>(static_cast<float>(x));
  if (x == 0) return 0;
  const int exponent = static_cast<int>(whole >> 23 & 255) - 127 + bias;
  return std::uint64_t{whole >> 31} << (width - 1) | static_cast<std::uint64_t>(exponent) << mantissa |
         (whole >> (23 - mantissa) & ((1u << mantissa) - 1));
}

/// The bits of a value in memory.
constexpr std::uint64_t stored_bits(DType type, std::int64_t x) {
  switch (type) {
    case DType::f16:
      return small_float_bits(x, 10, 15, 16);
    case DType::bf16:
      return small_float_bits(x, 7, 127, 16);
    case DType::e4m3:
      return small_float_bits(x, 3, 7, 8);
    case DType::e5m2:
      return small_float_bits(x, 2, 15, 8);
    case DType::f32:
      return std::bit_cast<std::uint32_t>(static_cast<float>(x));
    case DType::f64:
      return std::bit_cast<std::uint64_t>(static_cast<double>(x));
    default:
      break;
  }
  const unsigned bytes = element_bytes(type);
  return static_cast<std::uint64_t>(x) &
         (bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * bytes) - 1);
}

// --- for the kernels ---

/// What a rank's checks have found so far. The first wrong element is described.
struct StressFindings {
  std::uint64_t round = 0;    ///< batches that are complete
  std::uint64_t checked = 0;  ///< elements compared
  std::uint64_t wrong = 0;
  std::uint64_t got = 0;
  std::uint64_t wanted = 0;
  std::uint32_t claimed = 0;  ///< the rest is filled in
  std::uint32_t at_round = 0;
  std::uint32_t index = 0;  ///< of the operation, in its batch
  std::uint32_t element = 0;
  StressOp op;
};

/// stress_fill: the inputs of the chains that begin in this batch. stress_check: compares every result that
/// is still there. Both run kStressBlocks blocks per operation. stress_advance: one thread; the next round.
struct StressParams {
  std::byte* arena = nullptr;
  StressFindings* findings = nullptr;
  int rank = 0;
  int ranks = 0;
  StressOp ops[kMaxStressOps];
};
inline constexpr unsigned kStressBlocks = 16;

}  // namespace onehop::testing
