// SPDX-License-Identifier: Apache-2.0
// Shared by the fuzz targets. A parser may refuse its input with Error{protocol}. Any other exception is a
// finding, and so is accepted input that does not encode back to itself.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/error.h"

namespace onehop::fuzz {

/// An input that the fuzzer begins with.
struct Seed {
  std::string name;
  std::string bytes;
  bool accepted = true;  ///< what the target says of it; seeds that are refused reach the checks of parsers
};

/// Each target makes its seeds of binary formats with the encoders, so that they are of the format's present version.
/// Files of seeds would be refused at their first bytes after the next change of the version, and reach nothing behind
/// them. Text that people write stays in files (corpus/<name>); a target that has only those has no seeds here.
[[nodiscard]] std::vector<Seed> seeds();

/// Whether the target accepted its last input: it was parsed to its end.
inline bool accepted = false;

[[noreturn]] inline void finding(std::string_view what) {
  std::fprintf(stderr, "finding: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

template <class F>
void parse(F&& parser) {
  accepted = false;
  try {
    parser();
    accepted = true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::protocol) finding(error.message());
  }
}

inline void expect_same(std::string_view input, std::string_view encoded) {
  if (input != encoded) finding("an accepted input does not encode back to itself");
}

/// An error is one line that a terminal can show.
inline void expect_plain(std::string_view message) {
  for (const char c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) finding("an error holds a control character");
  }
}

/// A message behind the byte that chooses its parser. Not by operator+: at -O3, GCC 12 warns of what it makes of that.
[[nodiscard]] inline std::string behind(char chooser, std::string_view message) {
  std::string bytes(1, chooser);
  bytes.append(message);
  return bytes;
}

/// The bytes with one of them changed, for seeds that are refused.
[[nodiscard]] inline std::string changed(std::string bytes, std::size_t at, int value) {
  bytes.at(at) = static_cast<char>(value);
  return bytes;
}

[[nodiscard]] inline std::string_view view(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace onehop::fuzz
