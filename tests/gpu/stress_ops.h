// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the stress program: inputs derived from a hash, and their exact reductions. The functions
// are constexpr, so that kernels can call them too.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "onehop/types.h"

namespace onehop::testing {

/// The collectives from 0 to scatter; `send` stands for a send and a receive in one GroupCall, each rank to the
/// `root`-th after it.
inline constexpr int kStressKindCount = static_cast<int>(Collective::send) + 1;

/// One call, which may be the next link of a chain: its input is then the output of the previous one. The
/// links pass on one vector, X, whose elements are distributed as StressShape says. Reductions after the
/// first link combine equal copies of X. Offsets are those of this rank; everything else is the same on all
/// ranks.
struct StressOp {
  std::uint32_t in = 0;   ///< an offset: see kStressSymmetric
  std::uint32_t out = 0;  ///< in place: equal to `in`; for kinds with blocks, where the block belongs
  std::uint32_t count = 0;
  std::uint32_t first_count = 0;  ///< of the chain's first call
  std::uint32_t key = 0;          ///< of the chain's first input
  std::uint32_t ops = 0;  ///< the reductions of the chain so far, 4 bits each, the first in the lowest
  Collective kind = Collective::all_reduce;
  Collective first = Collective::all_reduce;  ///< of the chain's first call
  DType type = DType::f32;
  std::uint8_t root = 0;
  std::uint8_t first_root = 0;
  std::uint8_t depth = 1;  ///< how many links the chain has so far
  std::uint8_t folds = 0;  ///< how many of them reduce
  bool raw = false;        ///< the chain reduces nothing, and its elements are arbitrary bits
  bool in_place = false;
  bool checked = true;         ///< false: the next call overwrites it, in place
  std::uint8_t algorithm = 0;  ///< forced, or Algorithm::none
  bool together = false;  ///< in one GroupCall with the previous call: both are all-reduces and first links
};

/// Offsets are in bytes from the beginning of ordinary memory or, with this bit, of symmetric memory.
inline constexpr std::uint32_t kStressSymmetric = 1u << 31;
struct StressArena {
  std::byte* ordinary = nullptr;
  std::byte* symmetric = nullptr;

  [[nodiscard]] constexpr std::byte* at(std::uint32_t offset) const {
    return (offset & kStressSymmetric) != 0 ? symmetric + (offset & ~kStressSymmetric) : ordinary + offset;
  }
};

inline constexpr int kMaxStressOps = 48;  ///< per batch
inline constexpr int kMaxStressChain = 8;

constexpr bool reduces(Collective kind) {
  return kind == Collective::all_reduce || kind == Collective::reduce_scatter || kind == Collective::reduce;
}
/// True if the input, the output or both have a block for every rank, so that `count` is that of a block.
constexpr bool has_blocks(Collective kind) {
  return kind != Collective::all_reduce && kind != Collective::broadcast && kind != Collective::reduce &&
         kind != Collective::send;
}

/// How a call leaves X distributed.
enum class StressShape : std::uint8_t {
  everywhere,  ///< all of it on every rank
  parts,       ///< a part on each rank, in rank order
  at_root,     ///< all of it on `root` only
};
constexpr StressShape shape_after(const StressOp& op) {
  switch (op.kind) {
    case Collective::all_reduce:
    case Collective::all_gather:
    case Collective::broadcast:
      return StressShape::everywhere;
    case Collective::reduce:
    case Collective::gather:
      return StressShape::at_root;
    case Collective::send:  // a rank that has all of X passes all of X
      return op.depth == 1 ? StressShape::parts : StressShape::everywhere;
    default:
      return StressShape::parts;
  }
}

constexpr ReduceOp reduction(const StressOp& op, int fold) {
  return static_cast<ReduceOp>(op.ops >> (4 * fold) & 15);
}

constexpr bool is_float(DType type) {
  return type <= DType::e5m2;
}
constexpr unsigned element_bytes(DType type) {
  constexpr unsigned kBytes[kDTypeCount] = {2, 2, 4, 8, 1, 1, 1, 1, 4, 4, 8, 8};
  return kBytes[static_cast<int>(type)];
}

constexpr std::uint64_t element_mask(DType type) {
  const unsigned bytes = element_bytes(type);
  return bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * bytes) - 1;
}

/// Values are computed as 64-bit numbers. Those of floats are small enough to be exact in every step.
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

/// The factor of a premultiplied sum of the chain. It is a power of two for floats, which keeps the sum
/// exact.
constexpr double stress_factor(const StressOp& op) {
  const bool odd = op.key % 2 != 0;
  if (is_float(op.type)) return odd ? 0.5 : 2;
  const bool is_signed = op.type == DType::i8 || op.type == DType::i32 || op.type == DType::i64;
  return odd && is_signed ? -3 : 5;
}

constexpr std::int64_t divided(DType type, std::int64_t x, int ranks) {
  if (type == DType::u64)
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(x) / static_cast<std::uint64_t>(ranks));
  return x / ranks;
}

/// The final result, from the sum, product, ... over all ranks.
constexpr std::int64_t finished(const StressOp& op, ReduceOp how, std::int64_t total, int ranks) {
  if (how == ReduceOp::avg) return divided(op.type, total, ranks);
  if (how != ReduceOp::premul_sum) return total;
  const double factor = stress_factor(op);
  if (factor == 0.5) return total / 2;
  return wrapped(op.type, static_cast<std::uint64_t>(total) *
                              static_cast<std::uint64_t>(static_cast<std::int64_t>(factor)));
}

/// 64 random bits for one element of one rank.
constexpr std::uint64_t stress_bits(std::uint32_t key, std::uint32_t round, int rank, std::uint32_t i) {
  std::uint64_t x = std::uint64_t{key} << 32 | i;
  x ^= (std::uint64_t{round} << 4 | static_cast<unsigned>(rank)) * 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

/// How many elements rank `from` sends to rank `to` in an all_to_all_v: often none, at most `count`. It does
/// not depend on the round.
constexpr std::uint32_t count_between(const StressOp& op, int from, int to) {
  const std::uint64_t bits = stress_bits(op.key, ~0u, from, static_cast<std::uint32_t>(to));
  return bits % 4 == 0 ? 0 : static_cast<std::uint32_t>((bits >> 2) % (std::uint64_t{op.count} + 1));
}

/// The number of elements of rank `rank`'s input, whose blocks are adjacent in an all_to_all_v. 0: it needs
/// none.
constexpr std::uint32_t input_count(const StressOp& op, int rank, int ranks) {
  const auto n = static_cast<std::uint32_t>(ranks);
  switch (op.kind) {
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return n * op.count;
    case Collective::scatter:
      return rank == op.root ? n * op.count : 0;
    case Collective::broadcast:
      return rank == op.root ? op.count : 0;
    case Collective::all_to_all_v: {
      std::uint32_t total = 0;
      for (int r = 0; r < ranks; ++r) total += count_between(op, rank, r);
      return total;
    }
    default:
      return op.count;
  }
}
/// The number of elements of its output.
constexpr std::uint32_t output_count(const StressOp& op, int rank, int ranks) {
  const auto n = static_cast<std::uint32_t>(ranks);
  switch (op.kind) {
    case Collective::all_gather:
    case Collective::all_to_all:
      return n * op.count;
    case Collective::gather:
      return rank == op.root ? n * op.count : 0;
    case Collective::reduce:
      return rank == op.root ? op.count : 0;
    case Collective::all_to_all_v: {
      std::uint32_t total = 0;
      for (int r = 0; r < ranks; ++r) total += count_between(op, r, rank);
      return total;
    }
    default:
      return op.count;
  }
}

/// The index in X of element i of rank `rank`'s output. (An all_to_all_v ends its chain, since its output has
/// gaps.)
constexpr std::uint32_t position(const StressOp& op, int rank, int ranks, std::uint32_t i) {
  if (shape_after(op) != StressShape::parts) return i;
  const auto n = static_cast<std::uint32_t>(ranks);
  const bool many = op.kind == Collective::all_to_all || op.kind == Collective::all_to_all_v;
  return static_cast<std::uint32_t>(rank) * (many ? n * op.count : op.count) + i;
}

/// An element of a rank's input.
struct StressOrigin {
  int rank;
  std::uint32_t i;
};

/// Where a first call that does not reduce takes element x of X from.
constexpr StressOrigin origin(const StressOp& op, int ranks, std::uint32_t x) {
  const auto n = static_cast<std::uint32_t>(ranks);
  const std::uint32_t count = op.first_count;
  switch (op.first) {
    case Collective::all_gather:
    case Collective::gather:
      return {static_cast<int>(x / count), x % count};
    case Collective::send:
      return {static_cast<int>((x / count + n - op.first_root) % n), x % count};
    case Collective::all_to_all:
      return {static_cast<int>(x / count % n), x / (n * count) * count + x % count};
    case Collective::all_to_all_v: {
      const auto to = static_cast<int>(x / (n * count));
      std::uint32_t i = x % (n * count);
      // Blocks are ordered by rank, but received in reverse order.
      int from = ranks - 1;
      for (; i >= count_between(op, from, to); --from) i -= count_between(op, from, to);
      for (int before = 0; before < to; ++before) i += count_between(op, from, before);
      return {from, i};
    }
    default:  // broadcast, scatter
      return {op.first_root, x};
  }
}

/// Element i of rank `rank`'s input to a chain that begins with `op`. Integers are arbitrary. Floats are
/// integers of so few bits that no sum of 8 ranks is rounded: multiples of `ranks` where an average must be
/// exact, of two where it is halved, and 1 or 2 for products.
constexpr std::int64_t stress_input(const StressOp& op, std::uint32_t round, int rank, int ranks,
                                    std::uint32_t i) {
  const std::uint64_t bits = stress_bits(op.key, round, rank, i);
  if (!is_float(op.type)) return wrapped(op.type, bits);
  const ReduceOp first = reduces(op.first) ? reduction(op, 0) : ReduceOp::sum;
  if (first == ReduceOp::prod) {
    const std::int64_t size = 1 + static_cast<std::int64_t>(bits >> 62 & 1);
    return bits >> 63 != 0 ? -size : size;
  }
  constexpr int kBits[] = {9, 6, 18, 41, 2, 1};  // by type
  const int width = kBits[static_cast<int>(op.type)];
  const std::int64_t small =
      static_cast<std::int64_t>(bits >> (64 - width)) - (std::int64_t{1} << (width - 1));
  if (first == ReduceOp::avg) return small * ranks;
  return first == ReduceOp::premul_sum && stress_factor(op) < 1 ? 2 * small : small;
}

/// Element x of X after `op`.
constexpr std::int64_t stress_result(const StressOp& op, std::uint32_t round, int ranks, std::uint32_t x) {
  std::int64_t value = 0;
  int fold = 0;
  if (reduces(op.first)) {
    const ReduceOp how = reduction(op, fold++);
    value = stress_input(op, round, 0, ranks, x);
    for (int r = 1; r < ranks; ++r)
      value = combined(op.type, how, value, stress_input(op, round, r, ranks, x));
    value = finished(op, how, value, ranks);
  } else {
    const StressOrigin from = origin(op, ranks, x);
    value = stress_input(op, round, from.rank, ranks, from.i);
  }
  for (; fold < op.folds; ++fold) {
    const ReduceOp how = reduction(op, fold);
    std::int64_t total = value;
    for (int r = 1; r < ranks; ++r) total = combined(op.type, how, total, value);
    value = finished(op, how, total, ranks);
  }
  return value;
}

/// The bits of a number that the format represents exactly. Its exponent needs no bounds here.
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
  return static_cast<std::uint64_t>(x) & element_mask(type);
}

/// The bits in memory: element i of rank `rank`'s input of a chain's first call.
constexpr std::uint64_t input_bits(const StressOp& op, std::uint32_t round, int rank, int ranks,
                                   std::uint32_t i) {
  if (op.raw) return stress_bits(op.key, round, rank, i) & element_mask(op.type);
  return stored_bits(op.type, stress_input(op, round, rank, ranks, i));
}
/// Element i of its output of any call.
constexpr std::uint64_t output_bits(const StressOp& op, std::uint32_t round, int rank, int ranks,
                                    std::uint32_t i) {
  const std::uint32_t x = position(op, rank, ranks, i);
  if (!op.raw) return stored_bits(op.type, stress_result(op, round, ranks, x));
  const StressOrigin from = origin(op, ranks, x);
  return input_bits(op, round, from.rank, ranks, from.i);
}

// --- for the kernels ---

/// The findings of a rank's checks so far. Describes the first wrong element.
struct StressFindings {
  std::uint64_t round = 0;    ///< batches that are complete
  std::uint64_t checked = 0;  ///< elements compared
  std::uint64_t wrong = 0;
  std::uint64_t got = 0;
  std::uint64_t wanted = 0;
  std::uint32_t claimed = 0;  ///< set by the thread that fills in the rest
  std::uint32_t at_round = 0;
  std::uint32_t index = 0;  ///< of the operation, in its batch
  std::uint32_t element = 0;
  StressOp op;
};

/// stress_fill writes the inputs of the chains that begin in this batch. stress_check compares every result
/// that still exists on this rank. Both run kStressBlocks blocks per operation. stress_advance begins the
/// next round, with one thread.
struct StressParams {
  StressArena arena;
  StressFindings* findings = nullptr;
  int rank = 0;
  int ranks = 0;
  StressOp ops[kMaxStressOps];
};
inline constexpr unsigned kStressBlocks = 16;

}  // namespace onehop::testing
