// SPDX-License-Identifier: Apache-2.0
// Suggestions for typing errors.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace onehop {

/// How many letters to insert, leave out, exchange, or swap with the next, to make one word of the other.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The word that `typed` most likely was to be: the nearest of `words`, at most a third of its letters (and
/// at least one) away. '-' and '_' count as one letter, as do capital and small ones.
[[nodiscard]] std::optional<std::string_view> nearest(std::string_view typed,
                                                      std::span<const std::string_view> words);

}  // namespace onehop
