// SPDX-License-Identifier: Apache-2.0
// The web page of a comparison.
#include <string_view>

#include "base/check.h"
#include "base/markup.h"
#include "bench/html.h"
#include "bench/plots.h"
#include "compare.h"
#include "origin.h"

namespace onehop::cli {
namespace {

using markup::element;
using markup::escape;

std::string draw_rows(const std::vector<ComparedRow>& rows) {
  std::vector<std::string> lines;
  for (const ComparedRow& row : rows) {
    std::string& cells = lines.emplace_back();
    for (const std::string& cell : {fmt::format("{}", row.bytes), fmt::format("{:.2f}", row.a_us),
                                    fmt::format("{:.2f}", row.b_us), fmt::format("{:.3f}", row.ratio)}) {
      cells += element("td", {}, cell);
    }
    const std::string_view verdict = row.verdict;
    const std::string_view style = verdict == "faster" ? "ok" : verdict;
    cells += element("td", {{"class", style}},
                     verdict != "same"    ? verdict
                     : row.rounds_overlap ? "no difference: rounds overlap"
                                          : "no difference");
  }
  return html_table({"bytes", "A (\u00b5s)", "B (\u00b5s)", "B / A", "B is"}, lines);
}

/// The plots and the table of one collective.
std::string draw_collective(const std::vector<ComparedRow>& rows) {
  std::vector<ComparedSize> sizes;
  for (const ComparedRow& row : rows) {
    // Logarithmic axes cannot show 0.
    if (row.bytes > 0) sizes.push_back({static_cast<double>(row.bytes), row.a_us, row.b_us});
  }
  return (sizes.empty() ? "" : draw_compared_plots(sizes) + "\n") + draw_rows(rows);
}

}  // namespace

std::string to_html(const Comparison& comparison) {
  std::string body = element("h1", {}, "onehop compare");
  const auto line = [&](const std::string& text) { body += element("p", {}, escape(text)); };
  line(fmt::format("A: {}, {}", comparison.a.name, comparison.a.origin));
  line(fmt::format("B: {}, {}", comparison.b.name, comparison.b.origin));
  for (const std::string& each : comparison.differences) line("differs (A, B): " + each);
  for (const std::string& each : notes_of(comparison)) line(each);
  const std::size_t same = comparison.rows.size() - comparison.faster - comparison.slower;
  const auto figure = [&](std::size_t count, const char* meaning) {
    return html_figure(fmt::format("{} of {}", count, comparison.rows.size()), meaning);
  };
  body += element("div", {{"class", "figures"}},
                  figure(comparison.faster, "B is faster") + figure(comparison.slower, "B is slower") +
                      figure(same, "no difference")) +
          "\n";
  for (auto begin = comparison.rows.begin(); begin != comparison.rows.end();) {
    auto end = begin;
    while (end != comparison.rows.end() && end->collective == begin->collective) ++end;
    if (!begin->collective.empty())
      body += element("h2", {{"class", "collective"}}, escape(begin->collective)) + "\n";
    body += draw_collective({begin, end}) + "\n";
    begin = end;
  }
  body += element(
      "footer", {},
      fmt::format("{}; {}. No difference: medians within {:g}%, or rounds that overlap.",
                  escape(describe(build_info())), escape(describe(origin())), comparison.threshold * 100));
  return html_page("onehop compare", body);
}

}  // namespace onehop::cli
