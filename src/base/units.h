// SPDX-License-Identifier: Apache-2.0
// Sizes, times and lists as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/types.h"

namespace onehop {

/// The parts between separators; one, which may be empty, where there is none.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);

/// "4096", "64K", "10M", "1G", also with a B or iB behind ("64KiB"); powers of 1024. Error{invalid_argument}
/// otherwise.
[[nodiscard]] std::uint64_t parse_size(std::string_view text);
/// The shortest exact form: 65536 is "64K", 65537 is "65537".
[[nodiscard]] std::string format_size(std::uint64_t bytes);
/// A list "1K,4K,1M" or a range "first:last:factor" ("1K:64M:2"; the factor defaults to 2). Never empty.
[[nodiscard]] std::vector<std::uint64_t> parse_size_list(std::string_view text);

/// "30s", "500ms", "2m", "1.5" (seconds): up to a day. Nothing for what is no such time.
[[nodiscard]] std::optional<Duration> parse_duration(const std::string& text);

}  // namespace onehop
