// SPDX-License-Identifier: Apache-2.0
#include "compare.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "bench/report.h"
#include "origin.h"
#include "output.h"

namespace onehop::cli {
namespace {

using nlohmann::json;

std::string percent(double threshold) {
  return fmt::format("{:g}%", threshold * 100);
}

/// Adds the settings of one collective. Several collectives may have several values of a setting.
void add_settings(std::map<std::string, std::string>& all, const json& settings) {
  for (const auto& [key, value] : settings.items()) {
    std::string& known = all[key];
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (known.empty()) {
      known = text;
    } else if ((" " + known + " ").find(" " + text + " ") == std::string::npos) {
      known += " " + text;
    }
  }
}

ReportTime time_of(const BenchRow& row) {
  const double median = row.time.median_us;
  ReportTime time{median, median, median};
  for (const double us : row.rounds) {
    time.fastest_us = std::min(time.fastest_us, us);
    time.slowest_us = std::max(time.slowest_us, us);
  }
  return time;
}

bool has_one_collective(const ReportRows& rows) {
  return rows.times.empty() || rows.times.begin()->first.first == rows.times.rbegin()->first.first;
}

void forget_collective(ReportRows& rows) {
  decltype(rows.times) times;
  for (const auto& [key, time] : rows.times) times[{"", key.second}] = time;
  rows.times = std::move(times);
}

}  // namespace

ReportRows rows_of(const BenchDocument& document, std::string name) {
  ReportRows rows;
  rows.name = std::move(name);
  rows.origin = describe(document.origin);
  rows.settings["machine"] = document.machine.cpu;
  const bool complete =
      std::ranges::all_of(document.reports, [](const BenchReport& report) { return report.complete; });
  rows.settings["complete"] = complete ? "true" : "false";
  for (const BenchReport& report : document.reports) {
    add_settings(rows.settings, settings(report.options, document.launcher));
    for (const std::string& note : report.notes) {
      if (std::ranges::count(rows.notes, note) == 0) rows.notes.push_back(note);
    }
    const std::string collective(report.options.collective->name);
    for (const BenchRow& row : report.rows) {
      if (row.time.median_us > 0) rows.times[{collective, row.bytes}] = time_of(row);
    }
  }
  return rows;
}

Comparison compare(ReportRows a, ReportRows b, double threshold) {
  Comparison result;
  if (has_one_collective(a) && has_one_collective(b)) {
    forget_collective(a);
    forget_collective(b);
  }
  result.threshold = threshold;
  for (const auto& [key, a_time] : a.times) {
    const auto other = b.times.find(key);
    if (other == b.times.end()) continue;
    const ReportTime& b_time = other->second;
    ComparedRow row{.collective = key.first,
                    .bytes = key.second,
                    .a_us = a_time.median_us,
                    .b_us = b_time.median_us,
                    .ratio = b_time.median_us / a_time.median_us};
    row.verdict = "same";
    const bool is_slower = row.ratio > 1 + threshold;
    const bool is_faster = row.ratio < 1 / (1 + threshold);
    if (is_slower && b_time.fastest_us > a_time.slowest_us) {
      row.verdict = "slower";
      ++result.slower;
    } else if (is_faster && b_time.slowest_us < a_time.fastest_us) {
      row.verdict = "faster";
      ++result.faster;
    } else {
      row.rounds_overlap = is_slower || is_faster;
    }
    result.rows.push_back(row);
  }
  require(!result.rows.empty(), "'{}' and '{}' have no size in common", a.name, b.name);
  result.only_one = a.times.size() + b.times.size() - 2 * result.rows.size();
  std::map<std::string, std::pair<std::string, std::string>> settings;
  for (const auto& [key, value] : a.settings) settings[key].first = value;
  for (const auto& [key, value] : b.settings) settings[key].second = value;
  for (const auto& [key, values] : settings) {
    const auto& [in_a, in_b] = values;
    if (in_a == in_b) continue;
    result.differences.push_back(
        fmt::format("{}: {}, {}", key, in_a.empty() ? "none" : in_a, in_b.empty() ? "none" : in_b));
  }
  result.a = std::move(a);
  result.b = std::move(b);
  return result;
}

std::vector<std::string> notes_of(const Comparison& comparison) {
  const std::vector<std::string>& a = comparison.a.notes;
  const std::vector<std::string>& b = comparison.b.notes;
  std::vector<std::string> notes;
  for (const std::string& each : a)
    notes.push_back((std::ranges::count(b, each) == 0 ? "A: " : "A, B: ") + each);
  for (const std::string& each : b) {
    if (std::ranges::count(a, each) == 0) notes.push_back("B: " + each);
  }
  return notes;
}

std::string to_text(const Comparison& comparison, bool colors) {
  std::string text = wrapped(fmt::format("A: {}, {}", comparison.a.name, comparison.a.origin), "# ");
  text += wrapped(fmt::format("B: {}, {}", comparison.b.name, comparison.b.origin), "# ");
  for (const std::string& each : comparison.differences) text += wrapped("differs (A, B): " + each, "# ");
  for (const std::string& each : notes_of(comparison)) text += wrapped(each, "# ");
  text += fmt::format("{:>12} {:>12} {:>12} {:>8}  {}\n", "bytes", "A(us)", "B(us)", "B/A", "B is");
  double logs = 0;
  std::string collective;
  for (const ComparedRow& row : comparison.rows) {
    if (row.collective != collective) text += fmt::format("# {}\n", row.collective);
    collective = row.collective;
    const std::string_view verdict = row.verdict;
    const Color color = verdict == "slower" ? Color::red : Color::green;
    text += fmt::format("{:>12} {:>12.2f} {:>12.2f} {:>8.3f}  {}{}\n", row.bytes, row.a_us, row.b_us,
                        row.ratio, colored(verdict, color, colors && verdict != "same"),
                        row.rounds_overlap ? ": rounds overlap" : "");
    logs += std::log(row.ratio);
  }
  const std::size_t same = comparison.rows.size() - comparison.faster - comparison.slower;
  if (same == comparison.rows.size()) {
    text += fmt::format("# no difference in {} size{}: none beyond {} and beyond the spread of its rounds\n",
                        same, same == 1 ? "" : "s", percent(comparison.threshold));
  } else {
    text += fmt::format("# B: {} faster, {} slower, {} the same within {}; geometric mean of B/A {:.3f}\n",
                        comparison.faster, comparison.slower, same, percent(comparison.threshold),
                        std::exp(logs / static_cast<double>(comparison.rows.size())));
  }
  if (comparison.only_one > 0)
    text += fmt::format(
        "# {} in one of the reports only\n",
        comparison.only_one == 1 ? "1 size is" : fmt::format("{} sizes are", comparison.only_one));
  return text;
}

std::string to_json(const Comparison& comparison) {
  json rows = json::array();
  for (const ComparedRow& row : comparison.rows) {
    rows.push_back({{"bytes", row.bytes},
                    {"a_us", row.a_us},
                    {"b_us", row.b_us},
                    {"ratio", row.ratio},
                    {"verdict", row.verdict}});
    if (!row.collective.empty()) rows.back()["collective"] = row.collective;
  }
  json document = {{"format", "onehop-compare"},
                   {"format_version", 1},
                   {"a", comparison.a.name},
                   {"b", comparison.b.name},
                   {"threshold", comparison.threshold},
                   {"faster", comparison.faster},
                   {"slower", comparison.slower},
                   {"differences", comparison.differences},
                   {"notes", {{"a", comparison.a.notes}, {"b", comparison.b.notes}}},
                   {"results", rows}};
  return write_document(std::move(document));
}

}  // namespace onehop::cli
