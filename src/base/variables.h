// SPDX-License-Identifier: Apache-2.0
// Every environment variable that the library and the command read, in one table. 'onehop help environment'
// prints it, docs/guide/groups.md explains it, and whatever else begins with ONEHOP_ is a typing error.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace onehop {

struct Variable {
  std::string_view name;
  std::string_view readers;  ///< "library, command"
  std::string_view values;   ///< the legal ones: "trace, debug, info, warn, error or off"
  std::string_view meaning;
  /// Whether a value makes sense; nullptr: any may, and the reader refuses what it cannot use.
  bool (*is_legal)(std::string_view value) = nullptr;
};

/// All whose names begin with ONEHOP_.
[[nodiscard]] std::span<const Variable> variables();
/// nullptr when there is none of that name.
[[nodiscard]] const Variable* find_variable(std::string_view name);

/// "ONEHOP_CHECK='maybe' makes no sense; legal: 1 or 0 (...)"; nothing where the value is legal, or empty.
[[nodiscard]] std::optional<std::string> complaint_about(const Variable& variable, std::string_view value);
/// One line for every variable that is unknown, or whose value is nonsense. `environment` holds NAME=value.
[[nodiscard]] std::vector<std::string> complaints_about(std::span<const std::string_view> environment);

/// Warns of every complaint about this process's environment, once per process. Thread-safe. A rank that the
/// command starts for itself stays silent: the command has warned.
void check_environment();

}  // namespace onehop
