// SPDX-License-Identifier: Apache-2.0
// Reproducible inputs, and the check of a result against a reference. Shares no code with the library's kernels,
// which it checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "onehop/types.h"

namespace onehop::cli {

/// The inputs and the operation of one call. Element i of rank r is a function of (seed, r, i) alone.
struct CheckData {
  DType type = DType::f32;
  /// Empty: elements are moved. They may have any bits, all of which must arrive.
  std::optional<ReduceOp> op = ReduceOp::sum;
  int ranks = 0;
  std::uint64_t seed = 0;
  std::uint64_t first = 0;  ///< index of the first element: for filling and checking a part
  /// How often an implementation may round a result to the type. onehop rounds once; a ring rounds at every hop.
  int roundings = 1;
  int source = 0;     ///< the rank whose elements are moved
  double factor = 1;  ///< of premul_sum
};

/// Fills `count` elements with the input of a rank: random signs and fractions, exponents that keep every
/// reduction finite. Integers have their whole range and wrap, except for avg, whose sum must not wrap.
/// One thread takes half a minute for a gibibyte.
void fill_input(const CheckData& data, int rank, void* out, std::size_t count, int threads = 1);

struct WrongElement {
  std::size_t index = 0;
  std::string expected;
  std::string got;
};

/// Compares every element with a reference computed in double, in rank order. Integers, min and max must be
/// exact; floats may differ by the rounding of n-1 operations in the accumulation type and of the result.
/// Moved elements must have the bits of their source.
[[nodiscard]] std::optional<WrongElement> find_wrong(const CheckData& data, const void* result,
                                                     std::size_t count, int threads = 1);

/// A hash that shows whether ranks hold the same bits.
[[nodiscard]] std::uint64_t hash_bytes(const void* bytes, std::size_t size);

}  // namespace onehop::cli
