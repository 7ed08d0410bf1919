// SPDX-License-Identifier: Apache-2.0
#include "bench/plots.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>

#include "base/check.h"
#include "base/markup.h"
#include "base/units.h"
#include "bench/report.h"

namespace onehop::cli {
namespace {

using markup::element;
using markup::escape;

constexpr double kWidth = 460;
constexpr double kHeight = 310;
constexpr double kLeft = 62;
constexpr double kRight = 26;             ///< for half of the last label below
constexpr double kRightOfNames = 96;      ///< for short names at the ends of curves
constexpr double kCharacter = 8.7;        ///< of these names, in bold
constexpr std::size_t kLongestName = 20;  ///< at the end of a curve; the legend has whole names
constexpr double kTop = 12;
constexpr double kBottom = 32;
constexpr double kLineHeight = 17;
constexpr std::size_t kPeerColors = 4;  ///< that the page's style has

/// Marks of curves differ in shape as well, for readers who cannot distinguish the colors. Those of onehop (circle and
/// square) are larger than those of peers.
enum class Mark : std::uint8_t { circle, square, triangle, diamond };

struct Point {
  double bytes = 0;
  double value = 0;
  double low = 0;  ///< of the band; equal to `high` without a band
  double high = 0;
  Mark mark = Mark::circle;
  std::string style;  ///< class of its mark
  std::string note;   ///< a tooltip
};

struct Series {
  std::string name;
  std::string style;  ///< classes of its line
  std::vector<Point> points;
};

struct Plot {
  std::string title;
  double base = 10;  ///< base of the ticks of the value axis
  std::string (*label)(double) = nullptr;
  std::vector<Series> series;        ///< onehop first
  std::optional<double> baseline{};  ///< the value 1 of relative plots
};

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

Mark mark_of(Algorithm algorithm) {
  return algorithm == Algorithm::two_shot ? Mark::square : Mark::circle;
}

Mark mark_of_peer(std::size_t index) {
  return index % 2 == 0 ? Mark::triangle : Mark::diamond;
}

std::string format_bandwidth(double value) {
  return value < 1000 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

std::string format_ratio(double value) {
  return fmt::format("{:.3g}\u00d7", value);
}

std::string draw_mark(Mark mark, std::string_view style, double x, double y, const std::string& note) {
  const std::string type = fmt::format("dot {}", style);
  const std::string title = note.empty() ? "" : element("title", {}, escape(note));
  const auto path = [&](double top, std::string_view shape) {
    return element("path", {{"class", type}, {"d", fmt::format("M{:.1f} {:.1f}{}", x, top, shape)}}, title);
  };
  switch (mark) {
    case Mark::circle:
      return element("circle", {{"class", type}, {"cx", x}, {"cy", y}, {"r", 5.0}}, title);
    case Mark::square:
      return element(
          "rect", {{"class", type}, {"x", x - 4.6}, {"y", y - 4.6}, {"width", 9.2}, {"height", 9.2}}, title);
    case Mark::triangle:
      return path(y - 4.2, "l3.9 6.8h-7.8z");
    case Mark::diamond:
      return path(y - 4.2, "l4.2 4.2-4.2 4.2-4.2-4.2z");
  }
  return {};
}

std::string draw_line(std::string_view style, double x1, double x2, double y1, double y2) {
  return element("line", {{"class", style}, {"x1", x1}, {"x2", x2}, {"y1", y1}, {"y2", y2}});
}

std::string draw_label(double x, double y, std::string_view anchor, std::string_view label) {
  return element("text", {{"x", x}, {"y", y}, {"text-anchor", anchor}}, label);
}

/// Extends to powers of the base (half powers of 10), so that a label is always visible and little room is lost.
Scale value_scale(const Plot& plot) {
  double low = plot.baseline.value_or(plot.series.front().points.front().low);
  double high = low;
  for (const Series& series : plot.series) {
    for (const Point& point : series.points) {
      low = std::min(low, point.low);
      high = std::max(high, point.high);
    }
  }
  const double steps = plot.base == 10 ? 2 : 1;
  const double unit = std::log(plot.base);
  const auto rounded = [&](double value, double (*round)(double)) {
    return std::pow(plot.base, round(steps * std::log(value) / unit) / steps);
  };
  low = rounded(low * 0.98, [](double v) { return std::floor(v); });
  high = rounded(high * 1.02, [](double v) { return std::ceil(v); });
  if (std::floor(std::log(high) / unit + 1e-9) < std::ceil(std::log(low) / unit - 1e-9))
    low = std::pow(plot.base, std::floor(std::log(low) / unit));
  return {low, high, kHeight - kBottom, kTop};
}

/// Values to label: powers of the base, and where fewer than three of them are visible also multiples.
std::vector<double> value_ticks(const Plot& plot, const Scale& y) {
  const double unit = std::log(plot.base);
  const auto multiples = [&](std::initializer_list<double> factors) {
    std::vector<double> ticks;
    const int highest = static_cast<int>(std::floor(std::log(y.high) / unit + 1e-9));
    for (int power = static_cast<int>(std::floor(std::log(y.low) / unit)); power <= highest; ++power) {
      for (const double factor : factors) {
        const double tick = factor * std::pow(plot.base, power);
        if (tick >= y.low * (1 - 1e-9) && tick <= y.high * (1 + 1e-9)) ticks.push_back(tick);
      }
    }
    return ticks;
  };
  const std::vector<double> powers = multiples({1});
  return powers.size() > 2 || plot.base != 10 ? powers : multiples({1, 2, 5});
}

/// Sizes to label: powers of two, at most seven of them; the smallest and the largest size where they have fewer than
/// two powers of two between them.
std::vector<double> size_ticks(const Scale& x) {
  const int first = static_cast<int>(std::ceil(std::log2(x.low) - 1e-9));
  const int last = static_cast<int>(std::floor(std::log2(x.high) + 1e-9));
  if (x.low == x.high) return {x.low};
  if (first >= last) return {x.low, x.high};
  std::vector<double> ticks;
  const int step = std::max(1, (last - first + 5) / 6);
  for (int power = first; power <= last; power += step) ticks.push_back(std::ldexp(1.0, power));
  return ticks;
}

std::string draw_grid(const Plot& plot, const Scale& x, const Scale& y) {
  std::string svg;
  for (const double tick : value_ticks(plot, y)) {
    svg += draw_line("grid", x.from, x.to, y(tick), y(tick));
    svg += draw_label(x.from - 8, y(tick) + 4, "end", plot.label(tick));
  }
  for (const double tick : size_ticks(x)) {
    svg += draw_line("grid", x(tick), x(tick), y.from, y.to);
    svg += draw_label(x(tick), y.from + 20, "middle", format_size(static_cast<std::uint64_t>(tick)) + "B");
  }
  svg += element("path", {{"class", "axis"},
                          {"fill", "none"},
                          {"d", fmt::format("M{:.1f} {:.1f}V{:.1f}H{:.1f}", x.from, y.to, y.from, x.to)}});
  if (plot.baseline) svg += draw_line("baseline", x.from, x.to, y(*plot.baseline), y(*plot.baseline));
  return svg;
}

/// The range of the values of a series, such as from the fastest to the slowest samples.
std::string draw_band(const Series& series, const Scale& x, const Scale& y) {
  const bool flat =
      std::all_of(series.points.begin(), series.points.end(), [](const Point& p) { return p.low == p.high; });
  if (flat) return {};
  if (series.points.size() == 1) {  // a bar, since a band needs two sizes
    constexpr double kBarWidth = 26;
    const Point& point = series.points.front();
    return element("rect", {{"class", "band"},
                            {"x", x(point.bytes) - kBarWidth / 2},
                            {"y", y(point.high)},
                            {"width", kBarWidth},
                            {"height", y(point.low) - y(point.high)}});
  }
  std::string there;
  std::string back;
  for (const Point& point : series.points) {
    fmt::format_to(std::back_inserter(there), "{}{:.1f} {:.1f}", there.empty() ? "M" : "L", x(point.bytes),
                   y(point.high));
    back = fmt::format("L{:.1f} {:.1f}", x(point.bytes), y(point.low)) + back;
  }
  return element("path", {{"class", "band"}, {"d", there + back + "Z"}});
}

std::string name_at_end(const Series& series) {
  if (series.name.size() <= kLongestName) return series.name;
  return fmt::format("{:.{}}...", series.name, kLongestName - 3);  // in whole characters
}

/// The margin to the right of the curves.
double right_of(const std::vector<Series>& all) {
  if (all.size() < 2) return kRight;
  double width = kRightOfNames;
  for (const Series& each : all)
    width = std::max(width, 12 + kCharacter * static_cast<double>(name_at_end(each).size()));
  return width;
}

/// Names at the ends of the curves, moved apart where the ends are close.
std::string draw_names(const std::vector<Series>& all, const Scale& y) {
  if (all.size() < 2) return {};
  struct Name {
    const Series* series;
    double at;
  };
  std::vector<Name> names;
  for (const Series& each : all) names.push_back({&each, y(each.points.back().value)});
  std::stable_sort(names.begin(), names.end(), [](const Name& a, const Name& b) { return a.at < b.at; });
  double next = kTop + kLineHeight / 2;
  for (Name& name : names) {
    name.at = std::max(name.at, next);
    next = name.at + kLineHeight;
  }
  double lowest = kHeight - kBottom;
  for (std::size_t i = names.size(); i-- > 0;) {
    names[i].at = std::min(names[i].at, lowest);
    lowest = names[i].at - kLineHeight;
  }
  std::string svg;
  for (const Name& name : names) {
    const std::string& style = name.series->style;
    svg += element("text",
                   {{"class", fmt::format("name {}-name", style.substr(style.rfind(' ') + 1))},
                    {"x", kWidth - right_of(all) + 10},
                    {"y", name.at + 4}},
                   escape(name_at_end(*name.series)));
  }
  return svg;
}

std::string draw(const Plot& plot) {
  const std::vector<Point>& ours = plot.series.front().points;
  const Scale x{ours.front().bytes, ours.back().bytes, kLeft, kWidth - right_of(plot.series)};
  const Scale y = value_scale(plot);
  std::string curves;
  for (const Series& series : plot.series) {
    std::string line;
    std::string dots;
    for (const Point& point : series.points) {
      fmt::format_to(std::back_inserter(line), "{:.1f},{:.1f} ", x(point.bytes), y(point.value));
      dots += draw_mark(point.mark, point.style, x(point.bytes), y(point.value), point.note);
    }
    // onehop's curve comes last, on top of the others.
    curves = element("polyline", {{"class", series.style}, {"points", line}}) + dots + curves;
  }
  const std::string svg = element(
      "svg",
      {{"viewBox", fmt::format("0 0 {} {}", kWidth, kHeight)}, {"role", "img"}, {"aria-label", plot.title}},
      draw_grid(plot, x, y) + draw_band(plot.series.front(), x, y) + curves + draw_names(plot.series, y));
  return element("div", {{"class", "card"}}, element("h2", {}, escape(plot.title)) + svg);
}

/// A plot of `value` of the times of onehop and of each peer.
template <class Value>
Plot plot_of(std::string title, std::string (*label)(double), const std::vector<BenchRow>& rows,
             Value&& value) {
  Plot plot{.title = std::move(title), .label = label, .series = {{"onehop", "curve", {}}}};
  for (const BenchRow& row : rows) {
    const double ours = value(row, row.time.median_us);
    plot.series[0].points.push_back(
        {static_cast<double>(row.bytes), ours, ours, ours, mark_of(row.algorithm),
         std::string(to_string(row.algorithm)),
         fmt::format("onehop, {}B: {} ({})", format_size(row.bytes), label(ours), to_string(row.algorithm))});
  }
  const std::vector<std::string> names = peer_names(rows);
  for (std::size_t i = 0; i < names.size(); ++i) {
    Series series{names[i], fmt::format("peer peer{}", i % kPeerColors), {}};
    for (const BenchRow& row : rows) {
      const PeerTime* const peer = peer_of(row, names[i]);
      if (peer == nullptr) continue;
      const double theirs = value(row, peer->time.median_us);
      series.points.push_back({static_cast<double>(row.bytes), theirs, theirs, theirs, mark_of_peer(i),
                               fmt::format("peer{}-mark", i % kPeerColors),
                               fmt::format("{}, {}B: {}", names[i], format_size(row.bytes), label(theirs))});
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

std::string legend(const std::vector<BenchRow>& rows) {
  std::string out;
  const auto add = [&](Mark mark, const std::string& style, std::string_view text) {
    const std::string key =
        element("svg", {{"class", "key"}, {"viewBox", "0 0 12 12"}}, draw_mark(mark, style, 6, 6, ""));
    out += element("span", {}, key + escape(text));
  };
  const std::vector<std::string> names = peer_names(rows);
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
    const bool used = std::any_of(rows.begin(), rows.end(),
                                  [&](const BenchRow& row) { return row.algorithm == algorithm; });
    if (!used) continue;
    add(mark_of(algorithm), std::string(to_string(algorithm)),
        fmt::format("{}{}", names.empty() ? "" : "onehop, ", to_string(algorithm)));
  }
  for (std::size_t i = 0; i < names.size(); ++i)
    add(mark_of_peer(i), fmt::format("peer{}-mark", i % kPeerColors), names[i]);
  return out;
}

}  // namespace

std::string format_time(double us) {
  if (us >= 1e6) return fmt::format("{:.3g} s", us / 1e6);
  if (us >= 1e3) return fmt::format("{:.3g} ms", us / 1e3);
  return fmt::format("{:.3g} \u00b5s", us);
}

std::vector<std::string> peer_names(const std::vector<BenchRow>& rows) {
  std::vector<std::string> names;
  for (const BenchRow& row : rows) {
    for (const PeerTime& peer : row.peers) {
      if (peer.time.median_us > 0 && std::find(names.begin(), names.end(), peer.name) == names.end())
        names.push_back(peer.name);
    }
  }
  return names;
}

const PeerTime* peer_of(const BenchRow& row, const std::string& name) {
  for (const PeerTime& peer : row.peers) {
    if (peer.name == name && peer.time.median_us > 0) return &peer;
  }
  return nullptr;
}

std::string draw_plots(const BenchReport& report) {
  // Logarithmic axes cannot show 0.
  std::vector<BenchRow> rows;
  for (const BenchRow& row : report.rows) {
    if (row.bytes > 0 && row.time.min_us > 0 && row.time.median_us > 0) rows.push_back(row);
  }
  if (rows.empty()) return {};
  std::stable_sort(rows.begin(), rows.end(),
                   [](const BenchRow& a, const BenchRow& b) { return a.bytes < b.bytes; });

  const bool predicted = report.options.predicted_from != 0;
  Plot time = plot_of(predicted ? "Time per call (predicted)" : "Time per call (median; band: min to p95)",
                      format_time, rows, [](const BenchRow&, double us) { return us; });
  for (std::size_t i = 0; i < rows.size(); ++i) {
    time.series[0].points[i].low = rows[i].time.min_us;
    time.series[0].points[i].high = rows[i].time.p95_us;
  }
  std::string plots;

  std::vector<BenchRow> compared;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(compared),
               [](const BenchRow& row) { return ratio_to_peers(row).has_value(); });
  if (!compared.empty()) {
    Plot relative = plot_of("Time relative to the fastest peer", format_ratio, compared,
                            [](const BenchRow& row, double us) {
                              return us / row.time.median_us * ratio_to_peers(row).value_or(1);
                            });
    relative.base = 2;
    relative.baseline = 1;
    plots += draw(relative);
  }
  plots += draw(time);
  // One rank has no bus bandwidth.
  const bool on_bus =
      std::all_of(rows.begin(), rows.end(), [](const BenchRow& row) { return row.busbw > 0; });
  if (on_bus) {
    plots += draw(plot_of("Bus bandwidth (GB/s)", format_bandwidth, rows, [](const BenchRow& row, double us) {
      return row.busbw * row.time.median_us / us;
    }));
  }
  const std::string help = element("span", {}, "Both axes are logarithmic; point at a mark for its value.");
  return element("div", {{"class", "plots"}}, plots) +
         element("p", {{"class", "legend"}}, legend(rows) + help);
}

std::string draw_compared_plots(const std::vector<ComparedSize>& sizes) {
  Plot time{.title = "Time per call (median)",
            .label = format_time,
            .series = {{"B", "curve", {}}, {"A", "peer peer0", {}}}};
  Plot relative{.title = "Time of B relative to A",
                .base = 2,
                .label = format_ratio,
                .series = {{"B", "curve", {}}},
                .baseline = 1};
  const auto add = [&](Series& series, const ComparedSize& size, double value, std::string (*label)(double)) {
    const bool ours = series.name == "B";
    const std::string bytes = format_size(static_cast<std::uint64_t>(size.bytes));
    series.points.push_back({size.bytes, value, value, value, ours ? Mark::circle : mark_of_peer(0),
                             ours ? "one-shot" : "peer0-mark",
                             fmt::format("{}, {}B: {}", series.name, bytes, label(value))});
  };
  for (const ComparedSize& size : sizes) {
    add(time.series[0], size, size.b_us, time.label);
    add(time.series[1], size, size.a_us, time.label);
    add(relative.series[0], size, size.b_us / size.a_us, relative.label);
  }
  return element("div", {{"class", "plots"}}, draw(time) + draw(relative));
}

}  // namespace onehop::cli
