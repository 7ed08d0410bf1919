// SPDX-License-Identifier: Apache-2.0
// Parsing and formatting of sizes, times and lists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/types.h"

namespace onehop {

/// Splits a text at every separator. Without one it is a single part, which may be empty.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);

/// Parses "4096", "64K", "10M", "1G", optionally followed by B or iB ("64KiB"), in powers of 1024. Throws
/// Error{invalid_argument} otherwise.
[[nodiscard]] std::uint64_t parse_size(std::string_view text);
/// Formats a size in its shortest exact form: 65536 is "64K", 65537 is "65537".
[[nodiscard]] std::string format_size(std::uint64_t bytes);
/// Formats a rounded size: "48 KiB", "143.1 GiB".
[[nodiscard]] std::string human_bytes(std::uint64_t bytes);
/// Parses a list "1K,4K,1M" or a range "first:last:factor" ("1K:64M:2"; the factor defaults to 2). Never
/// returns an empty list.
[[nodiscard]] std::vector<std::uint64_t> parse_size_list(std::string_view text);

/// Parses "30s", "500ms", "2m" or "1.5" (seconds), up to one day. Returns nullopt for anything else.
[[nodiscard]] std::optional<Duration> parse_duration(const std::string& text);

}  // namespace onehop
