// SPDX-License-Identifier: Apache-2.0
// The web page of a benchmark: a table and two log-log plots as inline SVG.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include "onehop/version.h"

#include "base/check.h"
#include "base/units.h"
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
p { margin:.1rem 0; color:var(--soft); }
.figures { display:flex; flex-wrap:wrap; gap:1rem; margin:1.3rem 0 1rem; }
.figure { flex:1 1 150px; background:var(--card); border:1px solid var(--line); border-radius:10px; padding:.7rem 1rem; }
.figure b { display:block; font-size:1.4rem; font-weight:650; letter-spacing:-.01em; }
.figure span { color:var(--soft); font-size:.85rem; }
.plots { display:grid; grid-template-columns:repeat(auto-fit,minmax(440px,1fr)); gap:1rem; }
.card { background:var(--card); border:1px solid var(--line); border-radius:10px; padding:1rem 1.1rem; margin:0 0 1rem; }
h2 { font-size:1rem; margin:0 0 .3rem; }
svg { width:100%; height:auto; display:block; }
svg text { fill:var(--soft); font-size:12px; font-family:inherit; }
.grid { stroke:var(--line); stroke-width:1; }
.axis { stroke:var(--soft); stroke-width:1; }
.curve { fill:none; stroke:var(--auto); stroke-width:2; stroke-linejoin:round; opacity:.55; }
.band { fill:var(--band); }
.one-shot { fill:var(--one-shot); background:var(--one-shot); }
.two-shot { fill:var(--two-shot); background:var(--two-shot); }
.none { fill:var(--soft); background:var(--soft); }
.peer { fill:none; stroke-width:1.6; stroke-dasharray:5 4; stroke-linejoin:round; }
.peer0 { stroke:var(--peer0); } .peer1 { stroke:var(--peer1); }
i.peer0 { background:var(--peer0); } i.peer1 { background:var(--peer1); }
.dot { stroke:var(--card); stroke-width:1.5; }
.legend { display:flex; flex-wrap:wrap; gap:.2rem 1.2rem; font-size:.85rem; margin:0 .2rem 1rem; }
.legend i { display:inline-block; width:.7rem; height:.7rem; border-radius:50%; margin-right:.4rem; vertical-align:-1px; }
.scroll { overflow-x:auto; }
table { border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums; font-size:.9rem; }
th,td { text-align:right; padding:.32rem .6rem; border-bottom:1px solid var(--line); white-space:nowrap; }
th { color:var(--soft); font-weight:600; }
tr:last-child td { border-bottom:0; }
td.ok { color:#2b8a3e; }
@media (prefers-color-scheme: dark) { td.ok { color:#69db7c; } }
footer { color:var(--soft); font-size:.85rem; }
)css";

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// As the library prints it, with the hyphen CSS class names have.
std::string css_class(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::one_shot:
      return "one-shot";
    case Algorithm::two_shot:
      return "two-shot";
    case Algorithm::none:
      break;
  }
  return "none";
}

/// 0.00123 -> "0.00123", 12 -> "12": three significant digits.
std::string short_number(double value) {
  return fmt::format("{:.3g}", value);
}

/// Microseconds in the unit people read.
std::string format_time(double us) {
  if (us >= 1e6) return fmt::format("{:.3g} s", us / 1e6);
  if (us >= 1e3) return fmt::format("{:.3g} ms", us / 1e3);
  return fmt::format("{:.3g} \u00b5s", us);
}

/// A logarithmic scale onto pixels.
struct Scale {
  double low;
  double high;
  double from;
  double to;

  [[nodiscard]] double operator()(double value) const {
    const double span = std::log(high / low);
    return from + (to - from) * (span > 0 ? std::log(std::clamp(value, low, high) / low) / span : 0.5);
  }
};

struct Plot {
  std::string title;
  std::function<double(const BenchRow&)> value;
  std::function<double(const BenchRow&)> low;  ///< of the band; equal to high for none
  std::function<double(const BenchRow&)> high;
  std::function<std::string(double)> label;
  std::function<double(const BenchRow&, const PeerTime&)> peer;
};

constexpr double kWidth = 520;
constexpr double kHeight = 330;
constexpr double kLeft = 66;
constexpr double kRight = 14;
constexpr double kTop = 12;
constexpr double kBottom = 34;

std::string draw_grid(const Plot& plot, const Scale& x, const Scale& y) {
  std::string svg;
  auto out = std::back_inserter(svg);
  for (double tick = std::pow(10, std::ceil(std::log10(y.low) - 1e-9)); tick <= y.high * 1.0001; tick *= 10) {
    fmt::format_to(out, R"(<line class="grid" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)", x.from,
                   x.to, y(tick), y(tick));
    fmt::format_to(out, R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>)", x.from - 8, y(tick) + 4,
                   plot.label(tick));
  }
  // Powers of two, at most eight labels.
  const int first = static_cast<int>(std::ceil(std::log2(x.low) - 1e-9));
  const int last = static_cast<int>(std::floor(std::log2(x.high) + 1e-9));
  const int step = std::max(1, (last - first + 7) / 8);
  for (int power = first; power <= last; power += step) {
    const double at = x(std::ldexp(1.0, power));
    fmt::format_to(out, R"(<line class="grid" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)", at, at,
                   y.from, y.to);
    fmt::format_to(out, R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", at, y.from + 20,
                   format_size(std::uint64_t{1} << power));
  }
  fmt::format_to(out, R"(<path class="axis" fill="none" d="M{:.1f} {:.1f}V{:.1f}H{:.1f}"/>)", x.from, y.to,
                 y.from, x.to);
  return svg;
}

/// Names of those that have a time for any size, in the order of the rows.
std::vector<std::string> peer_names(const std::vector<BenchRow>& rows) {
  std::vector<std::string> names;
  for (const BenchRow& row : rows) {
    for (const PeerTime& peer : row.peers) {
      if (peer.time.median_us > 0 && std::find(names.begin(), names.end(), peer.name) == names.end()) {
        names.push_back(peer.name);
      }
    }
  }
  return names;
}

/// Of that name and with a time; else null.
const PeerTime* peer_of(const BenchRow& row, const std::string& name) {
  for (const PeerTime& peer : row.peers) {
    if (peer.name == name && peer.time.median_us > 0) return &peer;
  }
  return nullptr;
}

std::string draw_peers(const Plot& plot, const std::vector<BenchRow>& rows, const Scale& x, const Scale& y) {
  std::string svg;
  const std::vector<std::string> names = peer_names(rows);
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::string points;
    for (const BenchRow& row : rows) {
      const PeerTime* const peer = peer_of(row, names[i]);
      if (peer == nullptr) continue;
      fmt::format_to(std::back_inserter(points), "{:.1f},{:.1f} ", x(static_cast<double>(row.bytes)),
                     y(plot.peer(row, *peer)));
    }
    fmt::format_to(std::back_inserter(svg), R"(<polyline class="peer peer{}" points="{}"/>)", i, points);
  }
  return svg;
}

std::string draw(const Plot& plot, const std::vector<BenchRow>& rows) {
  double low = plot.low(rows.front());
  double high = plot.high(rows.front());
  for (const BenchRow& row : rows) {
    low = std::min(low, plot.low(row));
    high = std::max(high, plot.high(row));
    for (const PeerTime& peer : row.peers) {
      if (peer.time.median_us == 0) continue;
      low = std::min(low, plot.peer(row, peer));
      high = std::max(high, plot.peer(row, peer));
    }
  }
  const Scale x{static_cast<double>(rows.front().bytes), static_cast<double>(rows.back().bytes), kLeft,
                kWidth - kRight};
  // Out to the decades, or half of one: a label is always in sight, and little room is lost.
  const auto half_decade = [](double value, double (*round)(double)) {
    return std::pow(10, round(2 * std::log10(value)) / 2);
  };
  Scale y{half_decade(low * 0.98, [](double v) { return std::floor(v); }),
          half_decade(high * 1.02, [](double v) { return std::ceil(v); }), kHeight - kBottom, kTop};
  if (std::floor(std::log10(y.high) + 1e-9) < std::ceil(std::log10(y.low) - 1e-9)) {
    y.low = std::pow(10, std::floor(std::log10(y.low)));
  }

  std::string band;
  std::string band_back;
  std::string curve;
  std::string dots;
  for (const BenchRow& row : rows) {
    const double at = x(static_cast<double>(row.bytes));
    const double value = plot.value(row);
    fmt::format_to(std::back_inserter(band), "{}{:.1f} {:.1f}", band.empty() ? "M" : "L", at,
                   y(plot.high(row)));
    band_back = fmt::format("L{:.1f} {:.1f}", at, y(plot.low(row))) + band_back;
    fmt::format_to(std::back_inserter(curve), "{}{:.1f} {:.1f}", curve.empty() ? "M" : "L", at, y(value));
    fmt::format_to(
        std::back_inserter(dots),
        R"(<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="4.5"><title>{} bytes: {} ({})</title></circle>)",
        css_class(row.algorithm), at, y(value), row.bytes, plot.label(value), to_string(row.algorithm));
  }
  return fmt::format(
      R"(<div class="card"><h2>{}</h2><svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}<path )"
      R"(class="curve" d="{}"/>{}</svg></div>)",
      plot.title, kWidth, kHeight, plot.title, draw_grid(plot, x, y),
      rows.size() > 1 ? fmt::format(R"(<path class="band" d="{}{}Z"/>)", band, band_back) : "",
      draw_peers(plot, rows, x, y), curve, dots);
}

std::string draw_plots(const BenchReport& report) {
  // A logarithm has no place for nothing.
  std::vector<BenchRow> rows;
  for (const BenchRow& row : report.rows) {
    if (row.bytes > 0 && row.time.min_us > 0) rows.push_back(row);
  }
  if (rows.empty()) return {};
  std::sort(rows.begin(), rows.end(), [](const BenchRow& a, const BenchRow& b) { return a.bytes < b.bytes; });
  const Plot time{"Time per call (median; band: min to p95)",
                  [](const BenchRow& row) { return row.time.median_us; },
                  [](const BenchRow& row) { return row.time.min_us; },
                  [](const BenchRow& row) { return row.time.p95_us; },
                  format_time,
                  [](const BenchRow&, const PeerTime& peer) { return peer.time.median_us; }};
  const auto busbw = [](const BenchRow& row) { return row.busbw; };
  const Plot bandwidth{"Bus bandwidth",
                       busbw,
                       busbw,
                       busbw,
                       [](double value) { return short_number(value) + " GB/s"; },
                       [](const BenchRow& row, const PeerTime& peer) {
                         return row.busbw * row.time.median_us / peer.time.median_us;
                       }};
  // One rank uses no bus.
  const bool on_bus =
      std::all_of(rows.begin(), rows.end(), [](const BenchRow& row) { return row.busbw > 0; });
  const std::string drawn_bandwidth = on_bus ? draw(bandwidth, rows) : "";
  std::string legend;
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
    if (std::any_of(rows.begin(), rows.end(),
                    [&](const BenchRow& row) { return row.algorithm == algorithm; })) {
      legend +=
          fmt::format(R"(<span><i class="{}"></i>{}</span>)", css_class(algorithm), to_string(algorithm));
    }
  }
  const std::vector<std::string> names = peer_names(rows);
  for (std::size_t i = 0; i < names.size(); ++i) {
    legend += fmt::format(R"(<span><i class="peer{}"></i>{}</span>)", i, escape(names[i]));
  }
  return fmt::format(R"(<div class="plots">{}{}</div><p class="legend">{}<span>Both axes are logarithmic; )"
                     R"(point at a dot for its value.</span></p>)",
                     draw(time, rows), drawn_bandwidth, legend);
}

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

std::string draw_table(const BenchReport& report) {
  const std::vector<std::string> names = peer_names(report.rows);
  const bool eager = report.options.cuda && report.options.mode == BenchMode::eager;
  std::string heads;
  if (eager) heads += "<th>host (ns)</th>";
  for (const std::string& name : names) heads += fmt::format("<th>{} (\u00b5s)</th>", escape(name));
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
    fmt::format_to(
        std::back_inserter(rows),
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td>"
        "<td>{:.2f}</td>{}<td>{} &times; {}</td><td{}</td></tr>\n",
        row.bytes, row.count, to_string(row.algorithm), row.time.median_us, row.time.min_us, row.time.p95_us,
        row.algbw, row.busbw, more, row.samples, row.batch, row.checked ? " class=\"ok\">ok" : ">-");
  }
  return fmt::format(
      "<div class=\"card\"><div "
      "class=\"scroll\"><table><thead><tr><th>bytes</th><th>count</th><th>algorithm</th>"
      "<th>time (\u00b5s)</th><th>min</th><th>p95</th><th>algbw (GB/s)</th><th>busbw (GB/s)</th>{}"
      "<th>samples &times; calls</th><th>check</th></tr></thead><tbody>\n{}</tbody></table></div></div>",
      heads, rows);
}

std::string draw_notes(const BenchReport& report) {
  std::string notes;
  for (const std::string& note : report.notes) notes += fmt::format("<p>{}</p>", escape(note));
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
      escape(title), kStyle, escape(title), escape(describe(report.options)),
      escape(describe_machine(report.gpus)), escape(describe(origin())), draw_figures(report),
      draw_plots(report), draw_table(report), draw_notes(report), version(),
      commit.empty() ? "" : " (" + escape(commit) + ")", report.options.collective->bus_factor.text);
}

}  // namespace onehop::cli
