// SPDX-License-Identifier: Apache-2.0
// What c10d's calls move and reduce, in onehop's terms.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "onehop/c_api.h"

#include "types.h"

namespace onehop_torch {

struct Elements {
  onehop_dtype_t dtype;
  size_t scale;  ///< elements of `dtype` per element of the tensor: 2 for complex numbers
};

struct Reduction {
  onehop_op_t op = ONEHOP_OP_SUM;
  double factor = 1.0;
};

/// For collectives that only move data: a type that onehop lacks travels as bytes.
inline Elements moved(const at::Tensor& tensor) {
  if (const auto type = same_type(tensor.scalar_type())) return {*type, 1};
  return {ONEHOP_DTYPE_U8, static_cast<size_t>(tensor.element_size())};
}

/// For reductions. A sum or mean of complex numbers is that of their parts. TypeError for other types.
inline Elements reduced(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const at::ScalarType type = tensor.scalar_type();
  if (const auto same = same_type(type)) return {*same, 1};
  if (type == at::kBool) return {ONEHOP_DTYPE_U8, 1};  // see reduction()
  if (c10d::isComplexViewAsRealAllowed(op)) {
    if (type == at::kComplexFloat) return {ONEHOP_DTYPE_F32, 2};
    if (type == at::kComplexDouble) return {ONEHOP_DTYPE_F64, 2};
  }
  TORCH_CHECK_TYPE(false, "onehop does not reduce tensors of type ", type,
                   ": convert to a float type, bool, or an integer of 8, 32 or 64 bits");
}

/// ValueError for reductions that onehop lacks. Booleans are bytes of 0 and 1: their sum is a logical or,
/// their product a logical and, as with NCCL and gloo.
inline Reduction reduction(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const bool logical = tensor.scalar_type() == at::kBool;
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return {logical ? ONEHOP_OP_MAX : ONEHOP_OP_SUM};
    case c10d::ReduceOp::PRODUCT:
      return {logical ? ONEHOP_OP_MIN : ONEHOP_OP_PROD};
    case c10d::ReduceOp::MIN:
      return {ONEHOP_OP_MIN};
    case c10d::ReduceOp::MAX:
      return {ONEHOP_OP_MAX};
    case c10d::ReduceOp::AVG:
      TORCH_CHECK_TYPE(!logical, "onehop: the mean of booleans is not defined; use SUM, PRODUCT, MIN or MAX");
      return {ONEHOP_OP_AVG};
    case c10d::ReduceOp::PREMUL_SUM: {
      TORCH_CHECK_TYPE(!logical, "onehop: PREMUL_SUM of booleans is not defined");
      // The bindings of torch create no other supplement for PREMUL_SUM (c10d's makeNCCLPreMulSum).
      const auto* scale = static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      TORCH_CHECK_VALUE(scale != nullptr, "onehop: PREMUL_SUM without a factor");
      return {ONEHOP_OP_PREMUL_SUM,
              scale->tensor_factor.defined() ? scale->tensor_factor.item().toDouble() : scale->double_factor};
    }
    default:
      TORCH_CHECK_VALUE(
          false, "onehop has no bitwise reductions (BAND, BOR, BXOR): reduce booleans with MIN or MAX");
  }
}

}  // namespace onehop_torch
