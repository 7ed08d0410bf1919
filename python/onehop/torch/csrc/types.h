// SPDX-License-Identifier: Apache-2.0
// torch's element types in onehop's terms.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <optional>

#include "onehop/c_api.h"

namespace onehop_torch {

/// Nothing for types that onehop lacks.
inline std::optional<onehop_dtype_t> same_type(c10::ScalarType type) {
  // onehop knows torch's names of its types: "float16".
  static const auto types = [] {
    std::array<std::optional<onehop_dtype_t>, c10::NumScalarTypes> same;
    for (const auto& [name, named] : c10::getStringToDtypeMap()) {
      onehop_dtype_t parsed = -1;
      if (onehop_dtype_parse(name.c_str(), &parsed) == ONEHOP_OK) same[static_cast<size_t>(named)] = parsed;
    }
    return same;
  }();
  return types[static_cast<size_t>(type)];
}

}  // namespace onehop_torch
