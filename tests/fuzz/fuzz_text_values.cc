// SPDX-License-Identifier: Apache-2.0
// Text that users type: sizes, size lists and the names of types and reductions.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "onehop/error.h"
#include "onehop/types.h"

#include "base/units.h"
#include "fuzz.h"

namespace {

/// Any input either gives a value or throws Error; `check` tells whether the value makes sense.
template <class Parse, class Check>
void parse_and_check(Parse parse, Check check) {
  try {
    if (!check(parse())) std::abort();
    onehop::fuzz::accepted = true;
  } catch (const onehop::Error& error) {
    if (error.message().empty()) std::abort();
  }
}

}  // namespace

std::vector<onehop::fuzz::Seed> onehop::fuzz::seeds() {
  return {};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  parse_and_check(
      [&] { return onehop::parse_size(text); },
      [](std::uint64_t bytes) { return onehop::parse_size(onehop::format_size(bytes)) == bytes; });
  parse_and_check([&] { return onehop::parse_size_list(text); },
                  [](const auto& list) { return !list.empty(); });
  parse_and_check([&] { return onehop::parse_dtype(text); },
                  [](onehop::DType type) { return onehop::parse_dtype(onehop::to_string(type)) == type; });
  parse_and_check([&] { return onehop::parse_reduce_op(text); },
                  [](onehop::ReduceOp op) { return onehop::parse_reduce_op(onehop::to_string(op)) == op; });
  return 0;
}
