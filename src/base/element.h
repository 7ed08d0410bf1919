// SPDX-License-Identifier: Apache-2.0
// Properties of element types beyond those in onehop/types.h.
#pragma once

#include <optional>
#include <string>

#include "onehop/types.h"

#include "base/numeric.h"

namespace onehop {

/// Both accept numbers that are no type, and return false for them. is_signed: signed integers.
[[nodiscard]] bool is_float(DType type);
[[nodiscard]] bool is_signed(DType type);

/// Nothing for integers and for numbers that are no type.
[[nodiscard]] std::optional<FloatFormat> float_format(DType type);

/// The names of all types, separated by spaces: "f16 bf16 ...".
[[nodiscard]] std::string dtype_names();

}  // namespace onehop
