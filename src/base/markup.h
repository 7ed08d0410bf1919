// SPDX-License-Identifier: Apache-2.0
// Writing SVG and HTML.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace onehop::markup {

/// Escapes the characters that have a meaning in XML and HTML, and drops those that XML forbids.
[[nodiscard]] std::string escape(std::string_view text);

struct Attribute {
  Attribute(std::string_view its_name, std::string_view text) : name(its_name), value(escape(text)) {}
  /// A coordinate, with one decimal.
  Attribute(std::string_view its_name, double pixels);
  Attribute(std::string_view its_name, int number) : name(its_name), value(std::to_string(number)) {}

  std::string_view name;
  std::string value;
};
using Attributes = std::initializer_list<Attribute>;

/// An empty element: `<line x1="2.0"/>`.
[[nodiscard]] std::string element(std::string_view name, Attributes attributes);
/// `<text x="2.0">body</text>`; `body` is markup.
[[nodiscard]] std::string element(std::string_view name, Attributes attributes, std::string_view body);

}  // namespace onehop::markup
