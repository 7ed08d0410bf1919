// SPDX-License-Identifier: Apache-2.0
// The variables that make every set of devices count as fully connected.
#pragma once

namespace onehop {

/// The name of the variable that forces the verdict, or nullptr. Error{invalid_argument} when its value is no
/// flag.
[[nodiscard]] const char* fully_connected_forced_by();

}  // namespace onehop
