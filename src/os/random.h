// SPDX-License-Identifier: Apache-2.0
// Randomness from the kernel, for identities and nonces.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace onehop::os {

/// 128 random bits.
using Id = std::array<std::uint8_t, 16>;

[[nodiscard]] Id random_id();
[[nodiscard]] std::uint64_t random_u64();
/// 32 lower-case hex digits.
[[nodiscard]] std::string to_hex(const Id& id);

}  // namespace onehop::os
