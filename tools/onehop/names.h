// SPDX-License-Identifier: Apache-2.0
// Options whose values are names, and enumerations that are printed by the same names.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/check.h"

namespace onehop::cli {

template <class T>
struct Named {
  std::string_view name;
  T value;
};

/// Error{invalid_argument} lists the known names. Underscores are taken for dashes, as in names of algorithms.
template <class T, std::size_t N>
[[nodiscard]] T parse_name(const Named<T> (&names)[N], std::string_view text) {
  std::string known;
  std::string dashed(text);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  for (const Named<T>& each : names) {
    if (dashed == each.name) return each.value;
    known.append(" ").append(each.name);
  }
  fail(ErrorCode::invalid_argument, "unknown value '{}'; known:{}", text, known);
}

/// `value` is one of them.
template <class T, std::size_t N>
[[nodiscard]] std::string_view name_of(const Named<T> (&names)[N], T value) {
  for (const Named<T>& each : names) {
    if (value == each.value) return each.name;
  }
  return "unknown";
}

}  // namespace onehop::cli
