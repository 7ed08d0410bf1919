// SPDX-License-Identifier: Apache-2.0
// The web page of a benchmark: figures, plots, and a table.
#include "bench/html.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/markup.h"
#include "base/units.h"
#include "bench/plots.h"
#include "bench/report.h"

namespace onehop::cli {
namespace {

using markup::element;
using markup::escape;

constexpr const char* kStyle = R"css(
:root { --ink:#1b1f24; --soft:#5c6670; --line:#e3e6ea; --card:#fff; --page:#f5f6f8; --auto:#0b63ce;
  --one-shot:#0b63ce; --two-shot:#d9480f; --band:rgba(11,99,206,.13); --peer0:#6a737d; --peer1:#7a3fb5;
  --peer2:#1a7f5a; --peer3:#8a5a00; }
@media (prefers-color-scheme: dark) { :root { --ink:#e8eaed; --soft:#9aa4af; --line:#30363d; --card:#1a1e24;
  --page:#101317; --auto:#5aa6ff; --one-shot:#5aa6ff; --two-shot:#ff8a4c; --band:rgba(90,166,255,.18);
  --peer0:#9aa4af; --peer1:#c39bf0; --peer2:#6bd0a8; --peer3:#e0b060; } }
* { box-sizing:border-box; }
body { margin:0; padding:2.2rem 1.2rem; background:var(--page); color:var(--ink);
  font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif; }
main { max-width:1120px; margin:0 auto; }
h1 { font-size:1.55rem; margin:0 0 .2rem; letter-spacing:-.01em; }
p { margin:.1rem 0; color:var(--soft); overflow-wrap:anywhere; }
.figures { display:flex; flex-wrap:wrap; gap:1rem; margin:1.3rem 0 1rem; }
.figure { flex:1 1 150px; background:var(--card); border:1px solid var(--line); border-radius:10px; padding:.7rem 1rem; }
.figure b { display:block; font-size:1.4rem; font-weight:650; letter-spacing:-.01em; }
.figure span { color:var(--soft); font-size:.85rem; }
.plots { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(100%,430px),1fr)); gap:1rem; margin-bottom:1rem; }
.card { background:var(--card); border:1px solid var(--line); border-radius:10px; padding:1rem 1.1rem; margin:0 0 1rem; }
.plots .card { margin:0; }
h2 { font-size:1rem; margin:0 0 .3rem; }
h2.collective { font-size:1.25rem; margin:2.2rem 0 .2rem; }
nav { display:flex; flex-wrap:wrap; gap:.2rem 1.2rem; margin:.8rem 0 0; }
a { color:var(--auto); }
svg { width:100%; height:auto; display:block; }
svg text { fill:var(--soft); font-size:13px; font-family:inherit; }
.grid { stroke:var(--line); stroke-width:1; }
.axis { stroke:var(--soft); stroke-width:1; }
.baseline { stroke:var(--soft); stroke-width:1.5; stroke-dasharray:2 3; }
.curve { fill:none; stroke:var(--auto); stroke-width:3.2; stroke-linejoin:round; }
.band { fill:var(--band); }
.one-shot { fill:var(--one-shot); } .two-shot { fill:var(--two-shot); } .none { fill:var(--soft); }
.peer { fill:none; stroke-width:1.3; stroke-dasharray:5 4; stroke-linejoin:round; }
.peer0 { stroke:var(--peer0); } .peer1 { stroke:var(--peer1); } .peer2 { stroke:var(--peer2); } .peer3 { stroke:var(--peer3); }
.peer0-mark { fill:var(--peer0); } .peer1-mark { fill:var(--peer1); } .peer2-mark { fill:var(--peer2); } .peer3-mark { fill:var(--peer3); }
svg text.name { font-weight:650; }
svg text.curve-name { fill:var(--auto); } svg text.peer0-name { fill:var(--peer0); } svg text.peer1-name { fill:var(--peer1); }
svg text.peer2-name { fill:var(--peer2); } svg text.peer3-name { fill:var(--peer3); }
.dot { stroke:var(--card); stroke-width:1.2; }
.legend { display:flex; flex-wrap:wrap; gap:.2rem 1.2rem; font-size:.85rem; margin:0 .2rem 1rem; }
svg.key { display:inline-block; width:.85rem; height:.85rem; margin-right:.4rem; vertical-align:-2px; }
.scroll { overflow-x:auto; }
table { border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums; font-size:.9rem; }
th,td { text-align:right; padding:.32rem .5rem; border-bottom:1px solid var(--line); white-space:nowrap; }
th { color:var(--soft); font-weight:600; }
th:first-child,td:first-child { position:sticky; left:0; background:var(--card); }
tr:last-child td { border-bottom:0; }
td.ok { color:#2b8a3e; } td.slower { color:#c92a2a; }
@media (prefers-color-scheme: dark) { td.ok { color:#69db7c; } td.slower { color:#ff8787; } }
@media (max-width: 600px) { body { padding:1rem .6rem; } .card { padding:.7rem .6rem; } h1 { font-size:1.3rem; }
  .figure { flex-basis:110px; padding:.5rem .7rem; } .figure b { font-size:1.1rem; } th,td { padding:.3rem .45rem; }
  svg text { font-size:15px; } }
footer { color:var(--soft); font-size:.85rem; }
)css";

std::string draw_figures(const BenchReport& report) {
  if (report.rows.empty()) return {};
  const BenchRow& fastest = *std::min_element(
      report.rows.begin(), report.rows.end(),
      [](const BenchRow& a, const BenchRow& b) { return a.time.median_us < b.time.median_us; });
  const BenchRow& widest =
      *std::max_element(report.rows.begin(), report.rows.end(),
                        [](const BenchRow& a, const BenchRow& b) { return a.busbw < b.busbw; });
  const auto checked =
      std::count_if(report.rows.begin(), report.rows.end(), [](const BenchRow& row) { return row.checked; });
  const int from = report.options.predicted_from;
  return element("div", {{"class", "figures"}},
                 html_figure(format_time(fastest.time.median_us),
                             fmt::format("shortest call, {}B", format_size(fastest.bytes))) +
                     html_figure(fmt::format("{:.2f} GB/s", widest.busbw),
                                 fmt::format("highest bus bandwidth, {}B", format_size(widest.bytes))) +
                     (from != 0 ? html_figure("predicted", fmt::format("from what {} GPUs took", from))
                                : html_figure(fmt::format("{} of {}", checked, report.rows.size()),
                                              "sizes verified, every element on every rank")));
}

/// A column of the table: its head, and the cell of a row.
struct HtmlColumn {
  std::string head;
  std::function<std::string(const BenchRow&)> cell;
};

/// The most important columns first: narrow screens scroll to the rest.
std::vector<HtmlColumn> columns_of(const BenchReport& report) {
  const bool measured = report.options.predicted_from == 0;
  std::vector<HtmlColumn> columns;
  const auto add = [&](bool shown, std::string head, auto cell) {
    if (shown) columns.push_back({std::move(head), std::move(cell)});
  };
  add(true, "bytes", [](const BenchRow& row) { return std::to_string(row.bytes); });
  add(measured, "algorithm", [](const BenchRow& row) { return std::string(to_string(row.algorithm)); });
  add(true, "time (\u00b5s)", [](const BenchRow& row) { return two_decimals(row.time.median_us); });
  add(report.options.cuda && report.options.mode == BenchMode::eager, "host (ns)",
      [](const BenchRow& row) { return fmt::format("{:.0f}", row.host_ns); });
  const std::vector<std::string> names = peer_names(report.rows);
  for (const std::string& name : names) {
    add(true, escape(name) + " (\u00b5s)", [name](const BenchRow& row) {
      const PeerTime* const peer = peer_of(row, name);
      return peer != nullptr ? two_decimals(peer->time.median_us) : "-";
    });
  }
  add(!names.empty(), "ours / best", [](const BenchRow& row) {
    const auto ratio = ratio_to_peers(row);
    return ratio ? two_decimals(*ratio) : "-";
  });
  add(measured, "min", [](const BenchRow& row) { return two_decimals(row.time.min_us); });
  add(measured, "p95", [](const BenchRow& row) { return two_decimals(row.time.p95_us); });
  add(true, "busbw (GB/s)", [](const BenchRow& row) { return two_decimals(row.busbw); });
  add(true, "algbw (GB/s)", [](const BenchRow& row) { return two_decimals(row.algbw); });
  add(measured, "check", [](const BenchRow& row) { return std::string(row.checked ? "ok" : "-"); });
  add(true, "count", [](const BenchRow& row) { return std::to_string(row.count); });
  add(measured, "samples &times; calls",
      [](const BenchRow& row) { return fmt::format("{} &times; {}", row.samples, row.batch); });
  return columns;
}

std::string draw_table(const BenchReport& report) {
  const std::vector<HtmlColumn> columns = columns_of(report);
  std::vector<std::string> heads;
  for (const HtmlColumn& column : columns) heads.push_back(column.head);
  std::vector<std::string> rows;
  for (const BenchRow& row : report.rows) {
    std::string& cells = rows.emplace_back();
    for (const HtmlColumn& column : columns) {
      const std::string text = column.cell(row);
      cells += text == "ok" ? element("td", {{"class", "ok"}}, text) : element("td", {}, text);
    }
  }
  return html_table(heads, rows);
}

std::string draw_notes(const BenchReport& report) {
  std::string notes;
  for (const std::string& note : report.notes) notes += element("p", {}, escape(note));
  return notes.empty() ? notes : element("div", {{"class", "card"}}, element("h2", {}, "Notes") + notes);
}

std::string draw_links(const std::vector<BenchReport>& reports) {
  std::string links;
  for (const BenchReport& report : reports) {
    const std::string_view name = report.options.collective->name;
    links += element("a", {{"href", fmt::format("#{}", name)}}, name) + "\n";
  }
  return element("nav", {}, links);
}

/// "2(n-1)/n", or of several collectives "2(n-1)/n of all-reduce, (n-1)/n of all-gather".
std::string bus_factors(const std::vector<BenchReport>& reports) {
  std::string text;
  for (const BenchReport& report : reports) {
    const Benchmark& collective = *report.options.collective;
    if (reports.size() == 1) return collective.bus_factor.text;
    if (!collective.moves_data) continue;
    text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", collective.bus_factor.text, collective.name);
  }
  return text;
}

}  // namespace

std::string html_figure(const std::string& value, const std::string& meaning) {
  return element("div", {{"class", "figure"}}, element("b", {}, value) + element("span", {}, meaning));
}

std::string html_table(const std::vector<std::string>& heads, const std::vector<std::string>& rows) {
  std::string head;
  for (const std::string& each : heads) head += element("th", {}, each);
  std::string body = "\n";
  for (const std::string& each : rows) body += element("tr", {}, each) + "\n";
  const std::string table =
      element("table", {}, element("thead", {}, element("tr", {}, head)) + element("tbody", {}, body));
  return element("div", {{"class", "card"}}, element("div", {{"class", "scroll"}}, table));
}

std::string html_page(const std::string& title, const std::string& body) {
  std::string head = R"(<meta charset="utf-8"><meta name="viewport" )"
                     R"(content="width=device-width,initial-scale=1">)";
  head += element("title", {}, title) + element("style", {}, kStyle);
  return "<!doctype html>\n" +
         element("html", {{"lang", "en"}},
                 element("head", {}, head) + "\n" + element("body", {}, element("main", {}, body))) +
         "\n";
}

std::string to_html(const BenchDocument& document) {
  const std::vector<BenchReport>& reports = document.reports;
  const bool several = reports.size() > 1;
  const std::string title = several ? fmt::format("onehop bench, {} collectives", reports.size())
                                    : fmt::format("onehop {}", reports.front().options.collective->name);
  std::string body = element("h1", {}, title);
  const auto line = [&](const std::string& text) { body += element("p", {}, escape(text)); };
  if (!several) line(describe(reports.front().options));
  line(describe_machine(document));
  line(describe(document.origin));
  if (several) body += '\n' + draw_links(reports);
  for (const BenchReport& report : reports) {
    const std::string_view name = report.options.collective->name;
    if (several) {
      body += '\n' + element("h2", {{"class", "collective"}, {"id", name}}, name);
      line(describe(report.options));
    }
    for (const std::string& part :
         {draw_figures(report), draw_plots(report), draw_table(report), draw_notes(report)}) {
      body += '\n';
      body += part;
    }
  }
  body += '\n';
  body += element("footer", {},
                  fmt::format("{}. Times are of the slowest rank; bandwidths as nccl-tests defines them "
                              "(10<sup>9</sup> bytes per second; busbw = algbw &times; {}).",
                              escape(describe(document.build)), bus_factors(reports)));
  return html_page(title, body);
}

}  // namespace onehop::cli
