// Numbers from C callers, checked before they become enumerators.
#pragma once

#include "onehop/c_api.h"
#include "onehop/types.h"

#include "base/check.h"

namespace onehop::c_api {

inline DType to_dtype(onehop_dtype_t dtype) {
  require(dtype >= 0 && dtype < kDTypeCount, "element type {} is not one of ONEHOP_DTYPE_* (0 to {})", dtype,
          kDTypeCount - 1);
  return static_cast<DType>(dtype);
}

inline ReduceOp to_op(onehop_op_t op) {
  require(op >= 0 && op < kReduceOpCount, "reduction {} is not one of ONEHOP_OP_* (0 to {})", op,
          kReduceOpCount - 1);
  return static_cast<ReduceOp>(op);
}

}  // namespace onehop::c_api
