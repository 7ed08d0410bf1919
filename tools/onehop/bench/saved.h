// SPDX-License-Identifier: Apache-2.0
// Reads what 'onehop bench --json' wrote.
#pragma once

#include <string>
#include <string_view>

#include "bench/bench.h"

namespace onehop::cli {

/// The inverse of to_json(). `name` is that of the file. Error{invalid_argument} if the text is not such a report;
/// Error{protocol} names the field that is wrong.
[[nodiscard]] BenchDocument parse_document(std::string_view text, const std::string& name);

}  // namespace onehop::cli
