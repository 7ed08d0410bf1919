// SPDX-License-Identifier: Apache-2.0
// The plots of a benchmark's web page, as inline SVG. The style sheet of the page defines their colors.
#pragma once

#include <string>
#include <vector>

#include "bench/bench.h"

namespace onehop::cli {

/// Microseconds in the unit people read: "3.42 us", "1.2 ms".
[[nodiscard]] std::string format_time(double us);
/// The names of the peers that have a time for any size, in the order of the rows.
[[nodiscard]] std::vector<std::string> peer_names(const std::vector<BenchRow>& rows);
/// The peer of that name if it has a time, else nullptr.
[[nodiscard]] const PeerTime* peer_of(const BenchRow& row, const std::string& name);

/// Plots of the time, of the time relative to the fastest peer (with peers), and of the bus bandwidth, with a
/// legend. Empty when no size has a time.
[[nodiscard]] std::string draw_plots(const BenchReport& report);

/// A size in two reports.
struct ComparedSize {
  double bytes = 0;
  double a_us = 0;
  double b_us = 0;
};
/// Plots of the times of both and of B's over A's. `sizes` is not empty, ascending, and without size 0.
[[nodiscard]] std::string draw_compared_plots(const std::vector<ComparedSize>& sizes);

}  // namespace onehop::cli
