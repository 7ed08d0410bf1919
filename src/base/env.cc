// SPDX-License-Identifier: Apache-2.0
#include "base/env.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "base/check.h"

namespace onehop::env {
namespace {

std::optional<bool> parse_flag(std::string_view value) {
  std::string text(value);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (text == "1" || text == "true" || text == "yes" || text == "on") return true;
  if (text == "0" || text == "false" || text == "no" || text == "off") return false;
  return std::nullopt;
}

}  // namespace

std::optional<std::string> get(const char* name) {
  // Variables are read only at set-up, and the library never calls setenv, so getenv races only with a host
  // program that calls setenv.
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<long> get_int(const char* name, long lowest, long highest) {
  const std::optional<std::string> text = get(name);
  if (!text) return std::nullopt;
  long value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  require(error == std::errc{} && end == text->data() + text->size() && value >= lowest && value <= highest,
          "environment variable {}='{}' must be an integer from {} to {}", name, *text, lowest, highest);
  return value;
}

bool get_flag(const char* name, bool fallback) {
  const std::optional<std::string> text = get(name);
  if (!text) return fallback;
  const std::optional<bool> value = parse_flag(*text);
  if (!value) fail(ErrorCode::invalid_argument, "environment variable {}='{}' must be 1 or 0", name, *text);
  return *value;
}

bool is_flag(std::string_view value) {
  return parse_flag(value).has_value();
}

std::string runtime_base() {
  for (const char* name : {"ONEHOP_RUNTIME_DIR", "XDG_RUNTIME_DIR", "TMPDIR", "TMP", "TEMP", "TEMPDIR"}) {
    if (std::optional<std::string> value = get(name)) return *std::move(value);
  }
  return "/tmp";
}

}  // namespace onehop::env
