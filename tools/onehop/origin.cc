// SPDX-License-Identifier: Apache-2.0
#include "origin.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <string_view>

#include "base/check.h"

namespace onehop::cli {
namespace {

std::string& command_line() {
  static std::string text = "onehop";
  return text;
}

std::string quoted(std::string_view word) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_=+,.:/@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return std::string(word);
  std::string out = "'";
  for (const char c : word) {
    // Reports are lines.
    out += c == '\'' ? "'\\''" : std::string(1, c == '\n' || c == '\r' ? ' ' : c);
  }
  return out + "'";
}

Origin find_origin() {
  Origin origin;
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::array<char, 32> date{};
  if (::gmtime_r(&now, &utc) != nullptr && std::strftime(date.data(), date.size(), "%FT%TZ", &utc) != 0)
    origin.date = date.data();
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) origin.host = host.data();
  origin.command = command_line();
  return origin;
}

}  // namespace

void remember_command_line(int argc, char** argv) {
  // Not argv[0]: ranks that the command starts are /proc/self/exe.
  std::string text = "onehop";
  for (int i = 1; i < argc; ++i) text.append(1, ' ').append(quoted(argv[i]));
  command_line() = std::move(text);
}

const Origin& origin() {
  static const Origin found = find_origin();
  return found;
}

std::string describe(const Origin& origin) {
  return fmt::format("{} on {}: {}", origin.date, origin.host, origin.command);
}

}  // namespace onehop::cli
