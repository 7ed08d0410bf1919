// SPDX-License-Identifier: Apache-2.0
// Environment variables, parsed strictly: an invalid value is an error that names the variable.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace onehop::env {

/// Returns the value, or nullopt when unset or empty.
[[nodiscard]] std::optional<std::string> get(const char* name);
/// Parses a decimal integer within [lowest, highest]. Throws Error{invalid_argument}, which names variable,
/// value and range.
[[nodiscard]] std::optional<long> get_int(const char* name, long lowest, long highest);
/// Parses 1/0, true/false, yes/no or on/off in any case. Returns `fallback` if the variable is unset.
[[nodiscard]] bool get_flag(const char* name, bool fallback = false);
/// Whether get_flag() accepts the value.
[[nodiscard]] bool is_flag(std::string_view value);

/// The parent of private directories: the first that is set of ONEHOP_RUNTIME_DIR, XDG_RUNTIME_DIR, TMPDIR,
/// TMP, TEMP and TEMPDIR, else /tmp. Ranks in different containers must share it.
[[nodiscard]] std::string runtime_base();

}  // namespace onehop::env
