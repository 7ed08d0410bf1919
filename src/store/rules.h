// SPDX-License-Identifier: Apache-2.0
// Rules that all stores share: the limits, the meaning of add and compare_set, and the form of keys in
// messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "onehop/types.h"

namespace onehop::store {

/// Throws Error{invalid_argument} for a key or value beyond the limits of onehop/store.h.
void check_key(std::string_view key);
void check_value(std::string_view key, std::string_view value);
/// Checks `expected` and `desired` of compare_set.
void check_exchange(std::string_view key, std::string_view expected, std::string_view desired);

/// Throws Error{invalid_argument} for a negative timeout.
void check_timeout(Duration timeout);

/// Throws Error{timeout} for an operation that did not end in time. `store` is the store's describe().
[[noreturn]] void fail_expired(std::string_view operation, std::string_view key, Duration timeout,
                               std::string_view store, std::string_view why);

/// Returns the counter's new value. Throws Error{invalid_argument} if `current` is not a decimal integer or
/// the sum overflows.
[[nodiscard]] std::int64_t add_to_counter(std::string_view key, std::optional<std::string_view> current,
                                          std::int64_t delta);

/// Whether compare_set may write: the value equals `expected`, or the key is missing and `expected` is empty.
[[nodiscard]] bool exchange_allowed(std::optional<std::string_view> current, std::string_view expected);

/// Quotes a key or value for a one-line message: escapes unprintable bytes and truncates long text.
[[nodiscard]] std::string quoted(std::string_view bytes);

}  // namespace onehop::store
