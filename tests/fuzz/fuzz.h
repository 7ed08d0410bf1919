// SPDX-License-Identifier: Apache-2.0
// Shared by the fuzz targets. A parser may refuse its input with Error{protocol}. Any other exception is a
// finding, and so is accepted input that does not encode back to itself.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "onehop/error.h"

namespace onehop::fuzz {

[[noreturn]] inline void finding(std::string_view what) {
  std::fprintf(stderr, "finding: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

template <class F>
void parse(F&& parser) {
  try {
    parser();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::protocol) finding(error.message());
  }
}

inline void expect_same(std::string_view input, std::string_view encoded) {
  if (input != encoded) finding("an accepted input does not encode back to itself");
}

}  // namespace onehop::fuzz
