// SPDX-License-Identifier: Apache-2.0
// Identification of the process that started this one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace onehop::os {

/// Identifies the nearest ancestor of this process whose name contains `part` as "<pid>/<start time>", which
/// is unique in this PID namespace since boot. Returns nullopt if there is no such ancestor or /proc does not
/// show it.
[[nodiscard]] std::optional<std::string> find_ancestor(std::string_view part);

}  // namespace onehop::os
