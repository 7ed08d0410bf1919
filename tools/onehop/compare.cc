// SPDX-License-Identifier: Apache-2.0
#include "compare.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "origin.h"
#include "output.h"

namespace onehop::cli {
namespace {

using nlohmann::json;

std::string text_of(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// The text of a member; "unknown" without it.
std::string text_at(const json& object, const char* key) {
  return object.is_object() && object.contains(key) ? text_of(object.at(key)) : "unknown";
}

std::string percent(double threshold) {
  return fmt::format("{:g}%", threshold * 100);
}

}  // namespace

ReportRows parse_report(std::string_view text, const std::string& name) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool is_report = document.is_object() && document.contains("format") &&
                         document.at("format") == "onehop-bench" && document.contains("results") &&
                         document.at("results").is_array();
  require(is_report, "'{}' is no report of 'onehop bench --json'", name);
  ReportRows report{.name = name, .origin = {}, .settings = {}, .median_us = {}};
  report.origin = fmt::format("{} on {}: {}", text_at(document, "date"), text_at(document, "host"),
                              text_at(document, "command"));
  if (document.contains("run") && document.at("run").is_object()) {
    for (const auto& [key, value] : document.at("run").items()) report.settings[key] = text_of(value);
  }
  // An interrupted run may lack rows.
  if (document.contains("complete")) report.settings["complete"] = text_of(document.at("complete"));
  if (document.contains("machine")) report.settings["machine"] = text_at(document.at("machine"), "cpu");
  for (const json& row : document.at("results")) {
    const bool good = row.is_object() && row.contains("bytes") && row.at("bytes").is_number_unsigned() &&
                      row.contains("time_us") && row.at("time_us").is_object() &&
                      row.at("time_us").contains("median") && row.at("time_us").at("median").is_number();
    require(good, "'{}' has a row without bytes or without a median time", name);
    const double median = row.at("time_us").at("median").get<double>();
    if (std::isfinite(median) && median > 0) report.median_us[row.at("bytes").get<std::uint64_t>()] = median;
  }
  return report;
}

Comparison compare(ReportRows a, ReportRows b, double threshold) {
  Comparison result;
  result.threshold = threshold;
  for (const auto& [bytes, a_us] : a.median_us) {
    const auto other = b.median_us.find(bytes);
    if (other == b.median_us.end()) continue;
    ComparedRow row{.bytes = bytes, .a_us = a_us, .b_us = other->second, .ratio = other->second / a_us};
    row.verdict = "same";
    if (row.ratio > 1 + threshold) {
      row.verdict = "slower";
      ++result.slower;
    } else if (row.ratio < 1 / (1 + threshold)) {
      row.verdict = "faster";
      ++result.faster;
    }
    result.rows.push_back(row);
  }
  require(!result.rows.empty(), "'{}' and '{}' have no size in common", a.name, b.name);
  result.only_one = a.median_us.size() + b.median_us.size() - 2 * result.rows.size();
  for (const auto& [key, value] : a.settings) {
    const auto other = b.settings.find(key);
    const std::string there = other != b.settings.end() ? other->second : "unknown";
    if (there != value) result.differences.push_back(fmt::format("{}: {}, {}", key, value, there));
  }
  result.a = std::move(a);
  result.b = std::move(b);
  return result;
}

std::string to_text(const Comparison& comparison) {
  std::string text = wrapped(fmt::format("A: {}, {}", comparison.a.name, comparison.a.origin), "# ");
  text += wrapped(fmt::format("B: {}, {}", comparison.b.name, comparison.b.origin), "# ");
  for (const std::string& each : comparison.differences) text += wrapped("differs (A, B): " + each, "# ");
  text += fmt::format("{:>12} {:>12} {:>12} {:>8}  {}\n", "bytes", "A(us)", "B(us)", "B/A",
                      "within " + percent(comparison.threshold));
  double logs = 0;
  for (const ComparedRow& row : comparison.rows) {
    text += fmt::format("{:>12} {:>12.2f} {:>12.2f} {:>8.3f}  {}\n", row.bytes, row.a_us, row.b_us, row.ratio,
                        row.verdict);
    logs += std::log(row.ratio);
  }
  text +=
      fmt::format("# B: {} faster, {} slower, {} the same; geometric mean of B/A {:.3f}\n", comparison.faster,
                  comparison.slower, comparison.rows.size() - comparison.faster - comparison.slower,
                  std::exp(logs / static_cast<double>(comparison.rows.size())));
  if (comparison.only_one > 0)
    text += fmt::format("# {} sizes are in one of the reports only\n", comparison.only_one);
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
  }
  json document = {{"format", "onehop-compare"},
                   {"format_version", 1},
                   {"a", comparison.a.name},
                   {"b", comparison.b.name},
                   {"threshold", comparison.threshold},
                   {"faster", comparison.faster},
                   {"slower", comparison.slower},
                   {"differences", comparison.differences},
                   {"results", rows}};
  return write_document(std::move(document));
}

}  // namespace onehop::cli
