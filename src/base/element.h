// SPDX-License-Identifier: Apache-2.0
// Properties of element types beyond those in onehop/types.h.
#pragma once

#include "onehop/types.h"

namespace onehop {

/// Both accept numbers that are no type, and return false for them. is_signed: signed integers.
[[nodiscard]] bool is_float(DType type);
[[nodiscard]] bool is_signed(DType type);

}  // namespace onehop
