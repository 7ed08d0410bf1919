// SPDX-License-Identifier: Apache-2.0
// Reads what 'onehop bench --json' wrote.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bench/bench.h"

namespace onehop::cli {

/// The most bytes that a size in a report has.
inline constexpr std::int64_t kMaxSize = std::int64_t{1} << 62;

/// The figures, times and bandwidths, that a report may have: 0, or within these limits. Pages draw them on logarithmic
/// axes, and divide them by each other: the limits keep the quotients from infinity and from 0.
inline constexpr double kLeastFigure = 1e-15;
inline constexpr double kMostFigure = 1e15;
[[nodiscard]] constexpr bool is_figure(double value) {
  return value == 0 || (value >= kLeastFigure && value <= kMostFigure);
}

/// The inverse of to_json(). `name` is that of the file. Error{invalid_argument} if the text is not such a report;
/// Error{protocol} names the field that is wrong.
[[nodiscard]] BenchDocument parse_document(std::string_view text, const std::string& name);

}  // namespace onehop::cli
