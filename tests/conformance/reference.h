// SPDX-License-Identifier: Apache-2.0
// What collectives must compute, one element at a time, and inputs that show when they do not.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "onehop/types.h"

namespace onehop::testing {

using Bytes = std::vector<std::byte>;

/// A reduction with the factor that it takes.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  double factor = 1;

  bool operator==(const Reduction&) const = default;
};

/// What tests reduce elements of a type with: every op, premul_sum by factors that are exact and ones that
/// are not.
[[nodiscard]] std::vector<Reduction> reductions_of(DType type);

/// The bits of `inputs` combined element by element in rank order, in the accumulation type, rounded once. Of
/// one rank that is its input, whose NaNs keep their bits, unless it is multiplied.
[[nodiscard]] Bytes reduced(DType type, const Reduction& how, const std::vector<Bytes>& inputs);

/// Random elements; of floats mostly numbers of ordinary size, here and there random bits and special values,
/// so that reductions of many ranks are not all NaN.
[[nodiscard]] Bytes random_elements(DType type, std::size_t count, std::uint64_t seed);

/// Zeros of both signs, infinities, NaNs, subnormals, the largest, the smallest, ties and ordinary numbers of
/// a type, a few dozen; of narrow types every value there is.
[[nodiscard]] Bytes special_elements(DType type);

/// The hex bits of element i.
[[nodiscard]] std::string element_text(DType type, const std::byte* elements, std::size_t i);

/// The inputs of every rank of a group and what each of reductions_of() makes of them. Repeats with period
/// kPeriod, so any call's data is a stretch of it: calls of any size cost no more to prepare than to copy and
/// compare.
class Streams {
 public:
  /// Prime, so that data displaced by a chunk or a cache line is other data.
  static constexpr std::size_t kPeriod = 16411;

  Streams(int ranks, DType type, std::uint64_t seed);

  /// Elements start .. start + count - 1 of a rank's stream.
  void input(int rank, std::size_t start, std::size_t count, std::byte* to) const;
  /// The same stretch, reduced.
  void expected(const Reduction& how, std::size_t start, std::size_t count, std::byte* to) const;

 private:
  void stretch(const Bytes& period, std::size_t start, std::size_t count, std::byte* to) const;

  DType type_;
  std::vector<Bytes> inputs_;
  std::vector<Reduction> reductions_;
  std::vector<Bytes> expected_;  ///< per reduction
};

}  // namespace onehop::testing
