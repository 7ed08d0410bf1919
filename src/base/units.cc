// SPDX-License-Identifier: Apache-2.0
#include "base/units.h"

#include <array>
#include <charconv>
#include <limits>

#include "base/check.h"

namespace onehop {
namespace {

constexpr std::string_view kSuffixes = "KMGT";

}  // namespace

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::uint64_t parse_size(std::string_view text) {
  std::uint64_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  std::string_view suffix(end, static_cast<std::size_t>(last - end));
  bool good = error == std::errc{};
  int shift = 0;
  if (good && !suffix.empty()) {
    const char letter =
        static_cast<char>(suffix.front() >= 'a' ? suffix.front() - 'a' + 'A' : suffix.front());
    const std::size_t index = kSuffixes.find(letter);
    if (index != std::string_view::npos) {
      shift = 10 * (static_cast<int>(index) + 1);
      suffix.remove_prefix(1);
      if (suffix.starts_with('i')) {
        suffix.remove_prefix(1);
        good = suffix == "B";
      }
    }
    good = good && (suffix.empty() || suffix == "B" || suffix == "b");
  }
  require(good, "'{}' is not a size; write bytes with an optional K, M, G or T, such as 4096, 64K or 1G",
          text);
  require(value <= (std::numeric_limits<std::uint64_t>::max() >> shift), "size '{}' does not fit in 64 bits",
          text);
  return value << shift;
}

std::string format_size(std::uint64_t bytes) {
  std::size_t index = 0;
  std::uint64_t value = bytes;
  while (value != 0 && value % 1024 == 0 && index < kSuffixes.size()) {
    value /= 1024;
    ++index;
  }
  return index == 0 ? fmt::format("{}", bytes) : fmt::format("{}{}", value, kSuffixes[index - 1]);
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 7> kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  // 1023.95 would print as "1024.0".
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::string number = fmt::format("{:.1f}", value);
  if (number.ends_with(".0")) number.resize(number.size() - 2);
  return fmt::format("{} {}", number, kUnits[unit]);
}

std::vector<std::uint64_t> parse_size_list(std::string_view text) {
  std::vector<std::uint64_t> sizes;
  if (text.find(':') == std::string_view::npos) {
    for (const std::string_view part : split(text, ',')) sizes.push_back(parse_size(part));
    return sizes;
  }
  const std::vector<std::string_view> parts = split(text, ':');
  require(parts.size() <= 3, "'{}' is not a size range; write first:last:factor, such as 1K:64M:2", text);
  const std::uint64_t first = parse_size(parts[0]);
  const std::uint64_t last = parse_size(parts[1]);
  const std::uint64_t factor = parts.size() == 3 ? parse_size(parts[2]) : 2;
  require(first > 0 && first <= last, "size range '{}' must start above 0 and not end before it starts",
          text);
  require(factor >= 2, "size range '{}' needs a factor of at least 2", text);
  for (std::uint64_t size = first; size <= last; size *= factor) {
    sizes.push_back(size);
    if (size > last / factor) break;
  }
  return sizes;
}

std::optional<Duration> parse_duration(const std::string& text) {
  std::size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  const std::string unit = text.substr(used);
  const double scale = unit == "ms" ? 1 : unit.empty() || unit == "s" ? 1000 : unit == "m" ? 60000 : -1;
  if (scale < 0 || !(value >= 0 && value * scale <= 86.4e6)) return std::nullopt;
  return Duration(static_cast<Duration::rep>(value * scale));
}

}  // namespace onehop
