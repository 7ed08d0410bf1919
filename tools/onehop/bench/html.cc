// SPDX-License-Identifier: Apache-2.0
// The web page of a benchmark: figures, plots, a table.
#include <algorithm>
#include <iterator>

#include "onehop/version.h"

#include "base/check.h"
#include "base/units.h"
#include "bench/plots.h"
#include "bench/report.h"
#include "machine_info.h"
#include "origin.h"

namespace onehop::cli {
namespace {

constexpr const char* kStyle = R"css(
:root { --ink:#1b1f24; --soft:#5c6670; --line:#e3e6ea; --card:#fff; --page:#f5f6f8; --auto:#0b63ce;
  --one-shot:#0b63ce; --two-shot:#d9480f; --band:rgba(11,99,206,.13); --peer0:#6a737d; --peer1:#7a3fb5; }
@media (prefers-color-scheme: dark) { :root { --ink:#e8eaed; --soft:#9aa4af; --line:#30363d; --card:#1a1e24;
  --page:#101317; --auto:#5aa6ff; --one-shot:#5aa6ff; --two-shot:#ff8a4c; --band:rgba(90,166,255,.18);
  --peer0:#9aa4af; --peer1:#c39bf0; } }
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
svg { width:100%; height:auto; display:block; }
svg text { fill:var(--soft); font-size:13px; font-family:inherit; }
.grid { stroke:var(--line); stroke-width:1; }
.axis { stroke:var(--soft); stroke-width:1; }
.baseline { stroke:var(--soft); stroke-width:1.5; stroke-dasharray:2 3; }
.curve { fill:none; stroke:var(--auto); stroke-width:2; stroke-linejoin:round; opacity:.6; }
.band { fill:var(--band); }
.one-shot { fill:var(--one-shot); } .two-shot { fill:var(--two-shot); } .none { fill:var(--soft); }
.peer { fill:none; stroke-width:1.6; stroke-dasharray:5 4; stroke-linejoin:round; }
.peer0 { stroke:var(--peer0); } .peer1 { stroke:var(--peer1); }
.peer0-mark { fill:var(--peer0); } .peer1-mark { fill:var(--peer1); }
svg text.name { font-weight:650; }
svg text.curve-name { fill:var(--auto); } svg text.peer0-name { fill:var(--peer0); } svg text.peer1-name { fill:var(--peer1); }
.dot { stroke:var(--card); stroke-width:1.2; }
.legend { display:flex; flex-wrap:wrap; gap:.2rem 1.2rem; font-size:.85rem; margin:0 .2rem 1rem; }
svg.key { display:inline-block; width:.85rem; height:.85rem; margin-right:.4rem; vertical-align:-2px; }
.scroll { overflow-x:auto; }
table { border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums; font-size:.9rem; }
th,td { text-align:right; padding:.32rem .5rem; border-bottom:1px solid var(--line); white-space:nowrap; }
th { color:var(--soft); font-weight:600; }
th:first-child,td:first-child { position:sticky; left:0; background:var(--card); }
tr:last-child td { border-bottom:0; }
td.ok { color:#2b8a3e; }
@media (prefers-color-scheme: dark) { td.ok { color:#69db7c; } }
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
  return fmt::format(
      R"(<div class="figures"><div class="figure"><b>{}</b><span>shortest call, {}B</span></div>)"
      R"(<div class="figure"><b>{:.2f} GB/s</b><span>highest bus bandwidth, {}B</span></div>)"
      R"(<div class="figure"><b>{} of {}</b><span>sizes verified, every element on every rank</span></div></div>)",
      format_time(fastest.time.median_us), format_size(fastest.bytes), widest.busbw,
      format_size(widest.bytes), checked, report.rows.size());
}

/// What matters most first: narrow screens show the rest when one scrolls.
std::string draw_table(const BenchReport& report) {
  const std::vector<std::string> names = peer_names(report.rows);
  const bool eager = report.options.cuda && report.options.mode == BenchMode::eager;
  std::string heads;
  if (eager) heads += "<th>host (ns)</th>";
  for (const std::string& name : names) heads += fmt::format("<th>{} (\u00b5s)</th>", escape_html(name));
  if (!names.empty()) heads += "<th>ours / best</th>";
  std::string rows;
  for (const BenchRow& row : report.rows) {
    std::string more;
    if (eager) more += fmt::format("<td>{:.0f}</td>", row.host_ns);
    for (const std::string& name : names) {
      const PeerTime* const peer = peer_of(row, name);
      more += peer != nullptr ? fmt::format("<td>{:.2f}</td>", peer->time.median_us) : "<td>-</td>";
    }
    if (!names.empty()) {
      const auto ratio = ratio_to_peers(row);
      more += ratio ? fmt::format("<td>{:.2f}</td>", *ratio) : "<td>-</td>";
    }
    fmt::format_to(std::back_inserter(rows),
                   "<tr><td>{}</td><td>{}</td><td>{:.2f}</td>{}<td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</"
                   "td><td>{:.2f}</td>"
                   "<td{}</td><td>{}</td><td>{} &times; {}</td></tr>\n",
                   row.bytes, to_string(row.algorithm), row.time.median_us, more, row.time.min_us,
                   row.time.p95_us, row.busbw, row.algbw, row.checked ? " class=\"ok\">ok" : ">-", row.count,
                   row.samples, row.batch);
  }
  return fmt::format(
      "<div class=\"card\"><div "
      "class=\"scroll\"><table><thead><tr><th>bytes</th><th>algorithm</th>"
      "<th>time (\u00b5s)</th>{}<th>min</th><th>p95</th><th>busbw (GB/s)</th><th>algbw (GB/s)</th>"
      "<th>check</th><th>count</th><th>samples &times; "
      "calls</th></tr></thead><tbody>\n{}</tbody></table></div></div>",
      heads, rows);
}

std::string draw_notes(const BenchReport& report) {
  std::string notes;
  for (const std::string& note : report.notes) notes += fmt::format("<p>{}</p>", escape_html(note));
  return notes.empty() ? notes : fmt::format("<div class=\"card\"><h2>Notes</h2>{}</div>", notes);
}

}  // namespace

std::string to_html(const BenchReport& report) {
  const std::string commit = build_commit();
  const std::string title = fmt::format("onehop {}", report.options.collective->name);
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>{}</title><style>{}</style></head>\n<body><main>"
      "<h1>{}</h1><p>{}</p><p>{}</p><p>{}</p>\n{}\n{}\n{}\n{}\n<footer>onehop {}{}. Times are of the "
      "slowest rank; "
      "bandwidths as nccl-tests defines them (10<sup>9</sup> bytes per second; busbw = algbw &times; "
      "{}).</footer></main></body></html>\n",
      escape_html(title), kStyle, escape_html(title), escape_html(describe(report.options)),
      escape_html(describe_machine(report.gpus)), escape_html(describe(origin())), draw_figures(report),
      draw_plots(report), draw_table(report), draw_notes(report), version(),
      commit.empty() ? "" : " (" + escape_html(commit) + ")", report.options.collective->bus_factor.text);
}

}  // namespace onehop::cli
