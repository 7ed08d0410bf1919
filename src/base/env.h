// SPDX-License-Identifier: Apache-2.0
// Environment variables, parsed strictly: a value that cannot be understood is an error that names it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace onehop::env {

/// The value, or nullopt when unset or empty.
[[nodiscard]] std::optional<std::string> get(const char* name);
/// A decimal integer within [lowest, highest]; Error{invalid_argument} names variable, value and range.
[[nodiscard]] std::optional<long> get_int(const char* name, long lowest, long highest);
/// 1/0, true/false, yes/no, on/off in any case; unset is `fallback`.
[[nodiscard]] bool get_flag(const char* name, bool fallback = false);
/// Whether get_flag() understands it.
[[nodiscard]] bool is_flag(std::string_view value);

/// Where private directories go: the first that is set of ONEHOP_RUNTIME_DIR, XDG_RUNTIME_DIR, TMPDIR, TMP,
/// TEMP and TEMPDIR, else /tmp. Ranks in different containers need one that they share.
[[nodiscard]] std::string runtime_base();

}  // namespace onehop::env
