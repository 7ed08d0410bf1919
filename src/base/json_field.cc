// SPDX-License-Identifier: Apache-2.0
#include "base/json_field.h"

namespace onehop {
namespace {

/// A scalar's text; names and notes of foreign origin may hold bytes that are not UTF-8, which JSON cannot.
std::string scalar(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// On one line whatever it is: {"level": 1, "cpus": [0, 16]}.
std::string one_line(const Json& value) {
  if (!value.is_structured()) return scalar(value);
  std::string out;
  for (const auto& item : value.items()) {
    if (!out.empty()) out += ", ";
    if (value.is_object()) out += scalar(item.key()) + ": ";
    out += one_line(item.value());
  }
  return value.is_object() ? '{' + out + '}' : '[' + out + ']';
}

bool has_structured(const Json& value) {
  return std::any_of(value.begin(), value.end(), [](const Json& v) { return v.is_structured(); });
}

void write(const Json& value, std::size_t indent, bool in_array, std::string& out) {
  const bool object = value.is_object();
  if (!value.is_structured()) {
    out += scalar(value);
    return;
  }
  const bool has_lists_only = std::none_of(value.begin(), value.end(), has_structured);
  if (object ? has_lists_only : !has_structured(value)) {
    const std::string line = one_line(value);
    const bool row = !object && (in_array || (!value.empty() && value.front().is_number()));
    if (row || indent + line.size() <= 100) {
      out += line;
      return;
    }
  }
  const std::string margin(indent + 2, ' ');
  out += object ? '{' : '[';
  bool first = true;
  for (const auto& item : value.items()) {
    out += first ? "\n" : ",\n";
    first = false;
    out += margin;
    if (object) out += scalar(item.key()) + ": ";
    write(item.value(), indent + 2, !object, out);
  }
  out += fmt::format("\n{:{}}{}", "", indent, object ? '}' : ']');
}

}  // namespace

Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    fail(ErrorCode::protocol, "{}: {} bytes, more than the limit of {}", source, text.size(), limits.bytes);
  }
  // Without this limit, deeply nested brackets take fifty times their size in memory before they are
  // rejected.
  const auto limit_depth = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > limits.depth) {
      fail(ErrorCode::protocol, "{}: nested deeper than {} levels", source, limits.depth);
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), limit_depth);
  } catch (const Json::parse_error& e) {
    // The parser's message may quote raw bytes of the input, so report only the position.
    const std::size_t at = std::min(e.byte > 0 ? e.byte - 1 : 0, text.size());
    const std::string_view before = text.substr(0, at);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t column = at - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0: the first line
    fail(ErrorCode::protocol, "{}: not valid JSON at line {}, column {}{}", source, line, column,
         at >= text.size() ? ": it ends too early" : "");
  } catch (const Json::exception&) {
    fail(ErrorCode::protocol, "{}: holds a number that no field can hold", source);
  }
}

void JsonField::only(std::initializer_list<std::string_view> names) const {
  if (!value_->is_object()) wrong("must be an object, got {}", describe());
  for (const auto& member : value_->items()) {
    if (std::find(names.begin(), names.end(), member.key()) != names.end()) continue;
    std::string known;
    for (const std::string_view name : names) known += fmt::format("{}{}", known.empty() ? "" : " ", name);
    wrong("has no member {}; known: {}", show(member.key()), known);
  }
}

std::int64_t JsonField::integer(std::int64_t lowest, std::int64_t highest) const {
  const bool big = value_->is_number_unsigned() && value_->get<std::uint64_t>() > std::uint64_t{1} << 62;
  const std::int64_t value = value_->is_number_integer() && !big ? value_->get<std::int64_t>() : lowest;
  if (!value_->is_number_integer() || big || value < lowest || value > highest) {
    wrong("must be an integer from {} to {}, got {}", lowest, highest, describe());
  }
  return value;
}

std::string JsonField::text(std::size_t limit) const {
  if (!value_->is_string()) wrong("must be a string, got {}", describe());
  const auto& text = value_->get_ref<const std::string&>();
  if (text.size() > limit) wrong("has {} bytes, more than the limit of {}", text.size(), limit);
  const bool control =
      std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  // U+0080..U+009F, the C1 controls, are 0xc2 0x80..0x9f in UTF-8.
  bool c1 = false;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    const auto next = static_cast<unsigned char>(text[i + 1]);
    c1 = c1 || (static_cast<unsigned char>(text[i]) == 0xc2 && next < 0xa0);
  }
  if (control || c1) wrong("holds a control character");
  return text;
}

std::string JsonField::describe() const {
  if (value_->is_structured()) return value_->is_array() ? "an array" : "an object";
  return show(*value_);
}

std::string JsonField::show(const Json& scalar) {
  std::string text = scalar.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return text;
}

std::string write_json(const Json& document) {
  std::string out;
  write(document, 0, false, out);
  return out + "\n";
}

}  // namespace onehop
