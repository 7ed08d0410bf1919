// SPDX-License-Identifier: Apache-2.0
// The expected results of collectives, one element at a time, and inputs that reveal wrong results.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "onehop/types.h"

namespace onehop::testing {

using Bytes = std::vector<std::byte>;

/// A reduction with its factor.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  double factor = 1;
  bool weighted = false;  ///< CallOptions::own_factor: each rank has factor_of_rank()

  bool operator==(const Reduction&) const = default;
};

/// The reductions that tests use for a type: every op, and premul_sum with exact and inexact factors and with one of
/// each rank.
[[nodiscard]] std::vector<Reduction> reductions_of(DType type);

/// An element: a small number other than 1.
[[nodiscard]] Bytes factor_of_rank(DType type, std::size_t rank);

/// The bits of `inputs` reduced element by element in rank order, in the accumulation type, rounded once. For
/// one rank this is its input, whose NaNs keep their bits, unless it is multiplied.
[[nodiscard]] Bytes reduced(DType type, const Reduction& how, const std::vector<Bytes>& inputs);

/// Random elements. Floats are mostly numbers of ordinary size, with occasional random bits and special
/// values, so that reductions over many ranks are not all NaN.
[[nodiscard]] Bytes random_elements(DType type, std::size_t count, std::uint64_t seed);

/// Zeros of both signs, infinities, NaNs, subnormals, the largest, the smallest, ties and ordinary numbers of
/// a type, a few dozen in all. For narrow types, every value there is.
[[nodiscard]] Bytes special_elements(DType type);

/// The hex bits of element i.
[[nodiscard]] std::string element_text(DType type, const std::byte* elements, std::size_t i);

/// The inputs of every rank of a group, and their results for each of reductions_of(). They repeat with
/// period kPeriod, so any call's data is a section of them. Calls of any size need no more preparation than a
/// copy and a comparison.
class Streams {
 public:
  /// Prime, so that data displaced by a chunk or a cache line differs.
  static constexpr std::size_t kPeriod = 16411;

  Streams(int ranks, DType type, std::uint64_t seed);

  /// Elements start .. start + count - 1 of a rank's stream.
  void input(int rank, std::size_t start, std::size_t count, std::byte* to) const;
  /// The reduction of the same section.
  void expected(const Reduction& how, std::size_t start, std::size_t count, std::byte* to) const;

 private:
  void stretch(const Bytes& period, std::size_t start, std::size_t count, std::byte* to) const;

  DType type_;
  std::vector<Bytes> inputs_;
  std::vector<Reduction> reductions_;
  std::vector<Bytes> expected_;  ///< per reduction
};

}  // namespace onehop::testing
