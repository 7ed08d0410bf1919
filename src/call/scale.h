// SPDX-License-Identifier: Apache-2.0
// Sums that are scaled before their only rounding. avg and premul_sum share their kernels, on GPUs with sum; a Scale
// tells them how to scale the sum. Compiled by both compilers and for every instruction set, so it must not define
// inline functions (host/reduce_kernels.h).
#pragma once

#include <cstdint>

namespace onehop {

enum class DType : std::uint8_t;
enum class ReduceOp : std::uint8_t;

struct Scale {
  /// Bits of a number of the accumulation type, right-aligned. Of kWeightedSum on GPUs: where the factors of all ranks lie, as
  /// elements of the call's type.
  std::uint64_t number = 0;
  bool applies = false;  ///< false: the sum is the result
  bool divides = false;  ///< true: divide by the number; false: multiply
  std::uint8_t op = 0;   ///< kernel_op(), for the kernels of GPUs that serve several reductions
};

/// The scaling of a sum over `ranks` ranks for `type` and `op`. `factor` is premul_sum's and must satisfy
/// can_scale().
[[nodiscard]] Scale scale_of(DType type, ReduceOp op, double factor, int ranks);

/// The sum of what each rank multiplies by a factor of its own (CallOptions::own_factor), for the kernels of GPUs. Callers
/// ask for premul_sum.
inline constexpr auto kWeightedSum = static_cast<ReduceOp>(6);
[[nodiscard]] Scale weights_at(const void* factors);
/// For the product of elements and one of their type, whose bits are `element`, right-aligned.
[[nodiscard]] Scale product_with(DType type, std::uint64_t element);

/// Whether elements can be multiplied by this factor. Integer types need a factor that they represent
/// exactly.
[[nodiscard]] bool can_scale(DType type, double factor);

/// Whether the kernels of sums compute it: a sum, scaled or not.
[[nodiscard]] bool is_sum(ReduceOp op);

/// The host's kernels are numbered like reductions up to max; the last kernel sums and scales.
inline constexpr int kKernelOpCount = 5;
[[nodiscard]] int kernel_op(ReduceOp op);

}  // namespace onehop
