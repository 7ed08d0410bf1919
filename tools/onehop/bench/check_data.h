// SPDX-License-Identifier: Apache-2.0
// Inputs that can be made again anywhere, and the check of a result against them. Nothing here shares code
// with the library's kernels: it is what they are checked against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "onehop/types.h"

namespace onehop::cli {

/// The inputs of one call and what becomes of them: element i of rank r is a function of (seed, r, i) alone.
struct CheckData {
  DType type = DType::f32;
  /// Nothing: elements are moved, so they are any bits, and all of those must arrive.
  std::optional<ReduceOp> op = ReduceOp::sum;
  int ranks = 0;
  std::uint64_t seed = 0;
  std::uint64_t first = 0;  ///< index of the first element: for filling and checking a part
  /// How often a result may have been rounded to the type. Ours: once. Libraries that add up along a ring
  /// round at every hop.
  int roundings = 1;
  int source = 0;     ///< of what is moved: the rank it comes from
  double factor = 1;  ///< of premul_sum
};

/// Fills `count` elements with the input of a rank: random signs and mantissas, exponents that keep every
/// reduction finite; integers over their whole range (they wrap), except for avg, whose sum must not.
void fill_input(const CheckData& data, int rank, void* out, std::size_t count);

struct WrongElement {
  std::size_t index = 0;
  std::string expected;
  std::string got;
};

/// Compares every element with a reference computed in double, in rank order. Integers, min and max must be
/// exact; floats may differ by the rounding of n-1 operations in the accumulation type and of the result.
/// What is moved must be its source's, bit by bit.
[[nodiscard]] std::optional<WrongElement> find_wrong(const CheckData& data, const void* result,
                                                     std::size_t count);

/// The same by several threads: a gibibyte takes one of them half a minute.
void fill_input(const CheckData& data, int rank, void* out, std::size_t count, int threads);
[[nodiscard]] std::optional<WrongElement> find_wrong(const CheckData& data, const void* result,
                                                     std::size_t count, int threads);

/// Equal for equal bytes; for telling whether ranks hold the same bits.
[[nodiscard]] std::uint64_t hash_bytes(const void* bytes, std::size_t size);

}  // namespace onehop::cli
