// SPDX-License-Identifier: Apache-2.0
// Who started this process.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace onehop::os {

/// The nearest ancestor of this process whose name contains `part`: "<pid>/<start time>", which no other
/// process of this PID namespace has had since boot. nullopt when there is none, or /proc does not show it.
[[nodiscard]] std::optional<std::string> find_ancestor(std::string_view part);

}  // namespace onehop::os
