// SPDX-License-Identifier: Apache-2.0
// Suggestions for misspelled words.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace onehop {

/// The edit distance of two words: the number of insertions, deletions, substitutions and transpositions of
/// adjacent letters that turn one into the other.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The word that `typed` was most likely meant to be: the nearest of `words`, at a distance of at most a
/// third of its letters (and at least one). '-' and '_' are equal, as are upper and lower case.
[[nodiscard]] std::optional<std::string_view> nearest(std::string_view typed,
                                                      std::span<const std::string_view> words);

}  // namespace onehop
