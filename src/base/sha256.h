// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), for proving knowledge of a group's secret. A digest has
// 32 raw bytes.
#pragma once

#include <string>
#include <string_view>

namespace onehop {

inline constexpr std::size_t kDigestBytes = 32;

[[nodiscard]] std::string sha256(std::string_view bytes);
[[nodiscard]] std::string hmac_sha256(std::string_view key, std::string_view message);

/// Constant-time comparison for inputs of equal length, so that a proof cannot be guessed byte by byte.
[[nodiscard]] bool equal_constant_time(std::string_view a, std::string_view b);

/// Lower-case hexadecimal.
[[nodiscard]] std::string hex(std::string_view bytes);

}  // namespace onehop
