// SPDX-License-Identifier: Apache-2.0
#include "base/markup.h"

#include <fmt/core.h>

namespace onehop::markup {
namespace {

std::string open(std::string_view name, Attributes attributes) {
  std::string out = fmt::format("<{}", name);
  for (const Attribute& each : attributes) out += fmt::format(" {}=\"{}\"", each.name, each.value);
  return out;
}

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20) out += c;
    }
  }
  return out;
}

Attribute::Attribute(std::string_view its_name, double pixels)
    : name(its_name), value(fmt::format("{:.1f}", pixels)) {}

std::string element(std::string_view name, Attributes attributes) {
  return open(name, attributes) + "/>";
}

std::string element(std::string_view name, Attributes attributes, std::string_view body) {
  return fmt::format("{}>{}</{}>", open(name, attributes), body, name);
}

}  // namespace onehop::markup
