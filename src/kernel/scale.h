// SPDX-License-Identifier: Apache-2.0
// Sums that are scaled before their only rounding: avg and premul_sum are the same kernels, which a Scale
// tells what to do with the sum. Read by both compilers and for every instruction set, so no inline functions
// here (host/reduce_kernels.h).
#pragma once

#include <cstdint>

namespace onehop {

enum class DType : std::uint8_t;
enum class ReduceOp : std::uint8_t;

struct Scale {
  std::uint64_t number = 0;  ///< the bits of a number of the accumulation type, in the lowest places
  bool divides = false;      ///< or else multiplies
};

/// What kernels of `type` and `op` do with a sum of `ranks`. The factor is premul_sum's, which can_scale().
[[nodiscard]] Scale scale_of(DType type, ReduceOp op, double factor, int ranks);

/// Whether elements can be multiplied by this factor: integers only by one that their type holds exactly.
[[nodiscard]] bool can_scale(DType type, double factor);

/// Kernels are numbered like reductions up to max; the last one sums and scales.
inline constexpr int kKernelOpCount = 5;
[[nodiscard]] int kernel_op(ReduceOp op);

}  // namespace onehop
