// SPDX-License-Identifier: Apache-2.0
// What all stores agree on: the caps, the meaning of add and compare_set, and how keys appear in messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "onehop/types.h"

namespace onehop::store {

/// Error{invalid_argument} for a key or value beyond the caps of onehop/store.h.
void check_key(std::string_view key);
void check_value(std::string_view key, std::string_view value);
/// Both, for the arguments of compare_set.
void check_exchange(std::string_view key, std::string_view expected, std::string_view desired);

/// Error{invalid_argument} for a negative timeout.
void check_timeout(Duration timeout);

/// Error{timeout} of an operation that did not end in time. `store` is its describe().
[[noreturn]] void fail_expired(std::string_view operation, std::string_view key, Duration timeout,
                               std::string_view store, std::string_view why);

/// The counter's new value. Error{invalid_argument} when `current` is no decimal integer or the sum
/// overflows.
[[nodiscard]] std::int64_t add_to_counter(std::string_view key, std::optional<std::string_view> current,
                                          std::int64_t delta);

/// True when compare_set may write: the value equals `expected`, or the key is missing and `expected` is
/// empty.
[[nodiscard]] bool exchange_allowed(std::optional<std::string_view> current, std::string_view expected);

/// A key or value in quotes for a one-line message: unprintable bytes escaped, long ones cut.
[[nodiscard]] std::string quoted(std::string_view bytes);

}  // namespace onehop::store
