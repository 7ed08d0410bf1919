// SPDX-License-Identifier: Apache-2.0
// The environment variables that make every set of devices count as fully connected.
#pragma once

namespace onehop {

/// Returns the name of the variable that forces the result, or nullptr. Throws Error{invalid_argument} if its
/// value is not a flag.
[[nodiscard]] const char* fully_connected_forced_by();

}  // namespace onehop
