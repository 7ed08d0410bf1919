// SPDX-License-Identifier: Apache-2.0
// All environment variables that the library and the command read, in one table. 'onehop help environment'
// prints it and docs/guide/groups.md explains it. Any other variable that begins with ONEHOP_ is a
// misspelling.
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
  std::string_view values;   ///< legal values: "trace, debug, info, warn, error or off"
  std::string_view meaning;
  /// Whether a value is valid; nullptr: no check here, and the code that reads the variable rejects bad
  /// values.
  bool (*is_legal)(std::string_view value) = nullptr;
};

/// All variables whose names begin with ONEHOP_.
[[nodiscard]] std::span<const Variable> variables();
/// Returns nullptr if there is no variable of that name.
[[nodiscard]] const Variable* find_variable(std::string_view name);

/// Returns "ONEHOP_CHECK='maybe' makes no sense; legal: 1 or 0 (...)", or nullopt if the value is legal or
/// empty.
[[nodiscard]] std::optional<std::string> complaint_about(const Variable& variable, std::string_view value);
/// Returns one line for every variable that is unknown or has an invalid value. `environment` holds
/// NAME=value.
[[nodiscard]] std::vector<std::string> complaints_about(std::span<const std::string_view> environment);

/// Logs a warning for each of these lines about this process's environment, once per process. Thread-safe.
/// Ranks that the command starts for itself stay silent, because the command has already warned.
void check_environment();

}  // namespace onehop
