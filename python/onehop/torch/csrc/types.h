// SPDX-License-Identifier: Apache-2.0
// torch's element types in onehop's terms.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "onehop/c_api.h"

namespace onehop_torch {

/// Nothing for types that onehop lacks.
inline std::optional<onehop_dtype_t> same_type(c10::ScalarType type) {
  switch (type) {
    case c10::kHalf:
      return ONEHOP_DTYPE_F16;
    case c10::kBFloat16:
      return ONEHOP_DTYPE_BF16;
    case c10::kFloat:
      return ONEHOP_DTYPE_F32;
    case c10::kDouble:
      return ONEHOP_DTYPE_F64;
    case c10::kFloat8_e4m3fn:
      return ONEHOP_DTYPE_E4M3;
    case c10::kFloat8_e5m2:
      return ONEHOP_DTYPE_E5M2;
    case c10::kChar:
      return ONEHOP_DTYPE_I8;
    case c10::kByte:
      return ONEHOP_DTYPE_U8;
    case c10::kInt:
      return ONEHOP_DTYPE_I32;
    case c10::kUInt32:
      return ONEHOP_DTYPE_U32;
    case c10::kLong:
      return ONEHOP_DTYPE_I64;
    case c10::kUInt64:
      return ONEHOP_DTYPE_U64;
    default:
      return std::nullopt;
  }
}

}  // namespace onehop_torch
