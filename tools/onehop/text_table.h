// SPDX-License-Identifier: Apache-2.0
// Text that fits a terminal of 80 columns.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace onehop::cli {

inline constexpr std::size_t kTerminalColumns = 80;

/// `text` in lines that begin with `indent` and have at most `columns` letters, each ended by a newline.
/// Words that are longer stay whole.
[[nodiscard]] std::string wrapped(std::string_view text, std::string_view indent,
                                  std::size_t columns = kTerminalColumns);

}  // namespace onehop::cli
