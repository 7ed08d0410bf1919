// SPDX-License-Identifier: Apache-2.0
#include "text_table.h"

namespace onehop::cli {

std::string wrapped(std::string_view text, std::string_view indent, std::size_t columns) {
  std::string out;
  std::string line(indent);
  while (!text.empty()) {
    const std::size_t end = text.find(' ');
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (word.empty()) continue;
    const bool first = line.size() == indent.size();
    if (!first && line.size() + 1 + word.size() > columns) {
      out += line + "\n";
      line = indent;
    } else if (!first) {
      line += ' ';
    }
    line += word;
  }
  return line.size() == indent.size() ? out : out + line + "\n";
}

}  // namespace onehop::cli
