// SPDX-License-Identifier: Apache-2.0
// Compares two reports of 'onehop bench'.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench.h"

namespace onehop::cli {

/// A size of a report. Runs of rounds that overlap are not told apart; without rounds all three are the same.
struct ReportTime {
  double median_us = 0;
  double fastest_us = 0;  ///< of the rounds' medians
  double slowest_us = 0;
};

/// The compared part of a report.
struct ReportRows {
  std::string name;                             ///< of its file
  std::string origin;                           ///< date, host and command
  std::map<std::string, std::string> settings;  ///< members of "run", and the machine
  std::vector<std::string> notes;               ///< of its collectives
  /// By collective and bytes; without sizes that were not measured.
  std::map<std::pair<std::string, std::uint64_t>, ReportTime> times;
};

[[nodiscard]] ReportRows rows_of(const BenchDocument& document, std::string name);

struct ComparedRow {
  std::string collective;  ///< empty if both reports have only one, which are compared even if they differ
  std::uint64_t bytes = 0;
  double a_us = 0;
  double b_us = 0;
  double ratio = 0;  ///< b / a
  const char* verdict = "";
  bool rounds_overlap =
      false;  ///< the same for this reason only: the medians differ by more than the threshold
};

struct Comparison {
  ReportRows a;
  ReportRows b;
  double threshold = 0;
  std::vector<ComparedRow> rows;         ///< of the sizes in both reports
  std::vector<std::string> differences;  ///< "type: f32, bf16"
  std::size_t only_one = 0;              ///< number of sizes in only one report
  std::size_t faster = 0;
  std::size_t slower = 0;
};

/// A row is faster or slower if its medians differ by more than the threshold and its rounds do not overlap.
/// Error{invalid_argument} when they have no size in common.
[[nodiscard]] Comparison compare(ReportRows a, ReportRows b, double threshold);

/// "A: other programs used 1.2 of 2 processors"; each note once, with the runs that have it.
[[nodiscard]] std::vector<std::string> notes_of(const Comparison& comparison);
[[nodiscard]] std::string to_text(const Comparison& comparison, bool colors = false);
[[nodiscard]] std::string to_json(const Comparison& comparison);
/// One self-contained page with plots and a table for each collective.
[[nodiscard]] std::string to_html(const Comparison& comparison);

}  // namespace onehop::cli
