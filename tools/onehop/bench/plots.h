// SPDX-License-Identifier: Apache-2.0
// The plots of a benchmark's web page, as inline SVG whose colours the page's style sheet gives.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.h"

namespace onehop::cli {

/// With the characters escaped that mean something to HTML.
[[nodiscard]] std::string escape_html(std::string_view text);
/// Microseconds in the unit people read: "3.42 us", "1.2 ms".
[[nodiscard]] std::string format_time(double us);
/// Names of those that have a time for any size, in the order of the rows.
[[nodiscard]] std::vector<std::string> peer_names(const std::vector<BenchRow>& rows);
/// Of that name and with a time; else null.
[[nodiscard]] const PeerTime* peer_of(const BenchRow& row, const std::string& name);

/// Time, time relative to the fastest peer where there are peers, and bus bandwidth, with a legend. Empty
/// where no size has a time.
[[nodiscard]] std::string draw_plots(const BenchReport& report);

}  // namespace onehop::cli
