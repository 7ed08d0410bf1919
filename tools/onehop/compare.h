// SPDX-License-Identifier: Apache-2.0
// Two reports of 'onehop bench' laid side by side.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace onehop::cli {

/// What of a report is compared.
struct ReportRows {
  std::string name;                             ///< of its file
  std::string origin;                           ///< date, host and command, as far as it says
  std::map<std::string, std::string> settings;  ///< of its "run", and its machine
  std::map<std::uint64_t, double> median_us;    ///< by bytes; without those that were not measured
};

/// Error{invalid_argument} names the file and what is wrong with it.
[[nodiscard]] ReportRows parse_report(std::string_view text, const std::string& name);

struct ComparedRow {
  std::uint64_t bytes = 0;
  double a_us = 0;
  double b_us = 0;
  double ratio = 0;  ///< b / a
  const char* verdict = "";
};

struct Comparison {
  ReportRows a;
  ReportRows b;
  double threshold = 0;
  std::vector<ComparedRow> rows;         ///< of the sizes that both have
  std::vector<std::string> differences;  ///< "type: f32, bf16"
  std::size_t only_one = 0;              ///< sizes that one of them has alone
  std::size_t faster = 0;
  std::size_t slower = 0;
};

/// Error{invalid_argument} when they have no size in common.
[[nodiscard]] Comparison compare(ReportRows a, ReportRows b, double threshold);

[[nodiscard]] std::string to_text(const Comparison& comparison);
[[nodiscard]] std::string to_json(const Comparison& comparison);

}  // namespace onehop::cli
