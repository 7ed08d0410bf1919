// SPDX-License-Identifier: Apache-2.0
// Which machine this is.
#pragma once

#include <string>

namespace onehop::os {

/// The kernel's boot id: two processes share memory exactly when theirs are equal. Containers see the host's.
[[nodiscard]] std::string boot_id();
/// For messages only; containers of one host have different names.
[[nodiscard]] std::string hostname();

}  // namespace onehop::os
