// SPDX-License-Identifier: Apache-2.0
// Reads whole files that a user named.
#pragma once

#include <cstddef>
#include <string>

namespace onehop::os {

/// Returns the content of a regular file of at most `limit` bytes. Errors begin with `what`: Error{not_found}
/// if the file is missing, Error{invalid_argument} if it is not a regular file, Error{protocol} if it is
/// larger.
[[nodiscard]] std::string read_text_file(const std::string& path, const std::string& what, std::size_t limit);

}  // namespace onehop::os
