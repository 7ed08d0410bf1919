// SPDX-License-Identifier: Apache-2.0
// Whole files that a user named.
#pragma once

#include <cstddef>
#include <string>

namespace onehop::os {

/// What a regular file of at most `limit` bytes holds. Errors begin with `what`: Error{not_found} when there
/// is none, Error{invalid_argument} for what is no file, Error{protocol} when it is larger.
[[nodiscard]] std::string read_text_file(const std::string& path, const std::string& what, std::size_t limit);

}  // namespace onehop::os
