// SPDX-License-Identifier: Apache-2.0
#include "call/scale.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "onehop/types.h"

#include "base/element.h"
#include "base/numeric.h"

namespace onehop {
namespace {

std::uint64_t bits_in(DType type, double number) {
  if (type == DType::f64) return std::bit_cast<std::uint64_t>(number);
  if (is_float(type)) return std::bit_cast<std::uint32_t>(static_cast<float>(number));
  return number < 0 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(number))
                    : static_cast<std::uint64_t>(number);
}

}  // namespace

Scale scale_of(DType type, ReduceOp op, double factor, int ranks) {
  Scale scale;
  scale.op = static_cast<std::uint8_t>(kernel_op(op));
  scale.applies = op == ReduceOp::avg || op == ReduceOp::premul_sum;
  if (op == ReduceOp::avg) {
    // The inverse of a power of two is exact, and so both ways round the same number. A product takes less time.
    scale.divides = !is_float(type) || !std::has_single_bit(static_cast<unsigned>(ranks));
    scale.number = bits_in(type, scale.divides ? ranks : 1.0 / ranks);
  } else if (op == ReduceOp::premul_sum) {
    scale.number = bits_in(type, factor);
  }
  return scale;
}

Scale weights_at(const void* factors) {
  static_assert(static_cast<int>(kWeightedSum) == kReduceOpCount);
  return {.number = reinterpret_cast<std::uintptr_t>(factors),
          .op = static_cast<std::uint8_t>(kernel_op(kWeightedSum))};
}

Scale product_with(DType type, std::uint64_t element) {
  Scale scale{
      .number = element, .applies = true, .op = static_cast<std::uint8_t>(kernel_op(ReduceOp::premul_sum))};
  if (size_of(type) < sizeof(float) && is_float(type)) {
    const float value = decode(*float_format(type), static_cast<std::uint32_t>(element));
    scale.number = std::bit_cast<std::uint32_t>(value);
  }
  return scale;
}

bool can_scale(DType type, double factor) {
  if (is_float(type)) return true;
  const int bits = static_cast<int>(8 * size_of(type));
  // Powers of two, hence exact. Comparisons with NaN are false, so NaN is rejected.
  const double limit = std::ldexp(1.0, is_signed(type) ? bits - 1 : bits);
  const double least = is_signed(type) ? -limit : 0;
  return factor >= least && factor < limit && factor == std::trunc(factor);
}

bool is_sum(ReduceOp op) {
  return op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premul_sum;
}

int kernel_op(ReduceOp op) {
  return std::min(static_cast<int>(op), kKernelOpCount - 1);
}

}  // namespace onehop
