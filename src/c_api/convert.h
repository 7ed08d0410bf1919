// Numbers from C callers, checked before they become enumerators.
#pragma once

#include "onehop/c_api.h"
#include "onehop/types.h"

#include "base/check.h"

namespace onehop::c_api {

/// For what is refused here, before any rank hears of it.
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

// For calls that the other ranks make too. They must hear of what this rank refuses, so what is no enumerator
// becomes a value that the call itself rejects.
inline constexpr int kNoEnumerator = 0xff;

inline DType as_dtype(onehop_dtype_t dtype) {
  return static_cast<DType>(dtype >= 0 && dtype < kDTypeCount ? static_cast<int>(dtype) : kNoEnumerator);
}

inline ReduceOp as_op(onehop_op_t op) {
  return static_cast<ReduceOp>(op >= 0 && op < kReduceOpCount ? static_cast<int>(op) : kNoEnumerator);
}

inline Duration as_timeout(std::int64_t milliseconds, Duration fallback) {
  return milliseconds == ONEHOP_TIMEOUT_DEFAULT ? fallback : Duration{milliseconds};
}

}  // namespace onehop::c_api
