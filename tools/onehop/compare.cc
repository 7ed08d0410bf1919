// SPDX-License-Identifier: Apache-2.0
#include "compare.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "bench/saved.h"
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

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

std::string percent(double threshold) {
  return fmt::format("{:g}%", threshold * 100);
}

/// Adds the settings and times of one collective. Several collectives may have several values of a setting.
void add_results(ReportRows& report, const json& part, const std::string& collective) {
  if (part.contains("run") && part.at("run").is_object()) {
    for (const auto& [key, value] : part.at("run").items()) {
      std::string& known = report.settings[key];
      const std::string text = text_of(value);
      if (known.empty()) {
        known = text;
      } else if ((" " + known + " ").find(" " + text + " ") == std::string::npos) {
        known += " " + text;
      }
    }
  }
  for (const json& row : part.at("results")) {
    const bool good = row.is_object() && row.contains("bytes") && row.at("bytes").is_number_unsigned() &&
                      row.contains("time_us") && row.at("time_us").is_object() &&
                      row.at("time_us").contains("median") && row.at("time_us").at("median").is_number();
    require(good, "'{}' has a row without bytes or without a median time", report.name);
    const double median = row.at("time_us").at("median").get<double>();
    require(is_figure(median),
            "'{}' has a row with a time of {} us, which is neither 0 nor within {:g} to {:g}", report.name,
            median, kLeastFigure, kMostFigure);
    ReportTime time{median, median, median};
    if (row.contains("rounds_us")) {
      const json& rounds = row.at("rounds_us");
      const bool numbers = rounds.is_array() && std::all_of(rounds.begin(), rounds.end(),
                                                            [](const json& us) { return us.is_number(); });
      require(numbers, "'{}' has a row whose rounds_us are no list of numbers", report.name);
      for (const json& us : rounds) {
        time.fastest_us = std::min(time.fastest_us, us.get<double>());
        time.slowest_us = std::max(time.slowest_us, us.get<double>());
      }
    }
    const auto bytes = row.at("bytes").get<std::uint64_t>();
    require(bytes <= std::uint64_t{kMaxSize}, "'{}' has a row of {} bytes, more than {}", report.name, bytes,
            kMaxSize);
    if (median > 0) report.times[{collective, bytes}] = time;
  }
}

bool has_results(const json& part) {
  return part.is_object() && part.contains("results") && part.at("results").is_array();
}

}  // namespace

ReportRows parse_report(std::string_view text, const std::string& name) {
  bool plain = true;
  const auto check = [&plain](int /*depth*/, json::parse_event_t event, const json& parsed) {
    const bool is_text =
        event == json::parse_event_t::key || (event == json::parse_event_t::value && parsed.is_string());
    if (is_text) plain = plain && std::ranges::none_of(parsed.get_ref<const std::string&>(), is_control);
    return true;
  };
  const json document = json::parse(text, check, /*allow_exceptions=*/false);
  // They could be sequences that change what a terminal shows.
  require(plain, "'{}' has a text with control characters", name);
  const bool several =
      document.is_object() && document.contains("reports") && document.at("reports").is_array();
  const bool is_report =
      document.is_object() && document.contains("format") && document.at("format") == "onehop-bench" &&
      (several ? std::all_of(document.at("reports").begin(), document.at("reports").end(), has_results)
               : has_results(document));
  require(is_report, "'{}' is no report of 'onehop bench --json'", name);
  ReportRows report{.name = name, .origin = {}, .settings = {}, .times = {}};
  report.origin = fmt::format("{} on {}: {}", text_at(document, "date"), text_at(document, "host"),
                              text_at(document, "command"));
  // An interrupted run may lack rows.
  if (document.contains("complete")) report.settings["complete"] = text_of(document.at("complete"));
  if (document.contains("machine")) report.settings["machine"] = text_at(document.at("machine"), "cpu");
  if (several) {
    for (const json& part : document.at("reports")) {
      const bool named = part.contains("run") && part.at("run").is_object();
      add_results(report, part, named ? text_at(part.at("run"), "collective") : "unknown");
    }
  } else {
    add_results(report, document, "");
  }
  return report;
}

Comparison compare(ReportRows a, ReportRows b, double threshold) {
  Comparison result;
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
    if (row.ratio > 1 + threshold && b_time.fastest_us > a_time.slowest_us) {
      row.verdict = "slower";
      ++result.slower;
    } else if (row.ratio < 1 / (1 + threshold) && b_time.slowest_us < a_time.fastest_us) {
      row.verdict = "faster";
      ++result.faster;
    }
    result.rows.push_back(row);
  }
  require(!result.rows.empty(), "'{}' and '{}' have no size in common", a.name, b.name);
  result.only_one = a.times.size() + b.times.size() - 2 * result.rows.size();
  for (const auto& [key, value] : a.settings) {
    const auto other = b.settings.find(key);
    const std::string there = other != b.settings.end() ? other->second : "unknown";
    if (there != value) result.differences.push_back(fmt::format("{}: {}, {}", key, value, there));
  }
  result.a = std::move(a);
  result.b = std::move(b);
  return result;
}

std::string to_text(const Comparison& comparison, bool colors) {
  std::string text = wrapped(fmt::format("A: {}, {}", comparison.a.name, comparison.a.origin), "# ");
  text += wrapped(fmt::format("B: {}, {}", comparison.b.name, comparison.b.origin), "# ");
  for (const std::string& each : comparison.differences) text += wrapped("differs (A, B): " + each, "# ");
  text += fmt::format("{:>12} {:>12} {:>12} {:>8}  {}\n", "bytes", "A(us)", "B(us)", "B/A",
                      "within " + percent(comparison.threshold));
  double logs = 0;
  std::string collective;
  for (const ComparedRow& row : comparison.rows) {
    if (row.collective != collective) text += fmt::format("# {}\n", row.collective);
    collective = row.collective;
    const std::string_view verdict = row.verdict;
    const Color color = verdict == "slower" ? Color::red : Color::green;
    text += fmt::format("{:>12} {:>12.2f} {:>12.2f} {:>8.3f}  {}\n", row.bytes, row.a_us, row.b_us, row.ratio,
                        colored(verdict, color, colors && verdict != "same"));
    logs += std::log(row.ratio);
  }
  const std::size_t same = comparison.rows.size() - comparison.faster - comparison.slower;
  if (same == comparison.rows.size()) {
    text += fmt::format("# no difference in {} sizes: none beyond {} and beyond the spread of its rounds\n",
                        same, percent(comparison.threshold));
  } else {
    text += fmt::format("# B: {} faster, {} slower, {} the same; geometric mean of B/A {:.3f}\n",
                        comparison.faster, comparison.slower, same,
                        std::exp(logs / static_cast<double>(comparison.rows.size())));
  }
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
                   {"results", rows}};
  return write_document(std::move(document));
}

}  // namespace onehop::cli
