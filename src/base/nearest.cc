// SPDX-License-Identifier: Apache-2.0
#include "base/nearest.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

namespace onehop {
namespace {

std::string folded(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows of the table of prefix distances: `now` for the current prefix of `a`, `last` and `before` for the
  // two shorter ones.
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) now[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(now);
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) now[j] = std::min(now[j], before[j - 2] + 1);
    }
  }
  return now[b.size()];
}

std::optional<std::string_view> nearest(std::string_view typed, std::span<const std::string_view> words) {
  // Do not compare very long input (pasted by mistake): the cost is the product of both lengths.
  constexpr std::size_t kLongest = 64;
  if (typed.empty() || typed.size() > kLongest) return std::nullopt;
  const std::string wanted = folded(typed);
  std::optional<std::string_view> best;
  std::size_t best_distance = std::max<std::size_t>(1, typed.size() / 3) + 1;
  for (const std::string_view word : words) {
    const std::size_t distance = edit_distance(wanted, folded(word));
    // A word of two letters has distance 1 from any other with the same first letter.
    if (distance >= best_distance || distance >= word.size()) continue;
    best = word;
    best_distance = distance;
  }
  return best;
}

}  // namespace onehop
