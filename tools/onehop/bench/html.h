// SPDX-License-Identifier: Apache-2.0
// Parts of web pages. A page is one file without scripts or external resources, for light and dark screens.
#pragma once

#include <string>
#include <vector>

namespace onehop::cli {

/// The page with that title; `body` is markup.
[[nodiscard]] std::string html_page(const std::string& title, const std::string& body);
/// A figure and what it means, both markup. A row of them has the class "figures".
[[nodiscard]] std::string html_figure(const std::string& value, const std::string& meaning);
/// A table with these heads; each row is its td elements. All of them are markup.
[[nodiscard]] std::string html_table(const std::vector<std::string>& heads,
                                     const std::vector<std::string>& rows);

}  // namespace onehop::cli
