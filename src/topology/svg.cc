// SPDX-License-Identifier: Apache-2.0
#include "topology/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/markup.h"
#include "topology/render.h"

namespace onehop {
namespace svg {

using markup::element;
using markup::escape;

std::string text(Point at, std::string_view style, std::string_view content) {
  return element("text", {{"x", at.x}, {"y", at.y}, {"class", style}}, escape(content)) + "\n";
}

std::string moved(Point by, std::string_view body) {
  return element("g", {{"transform", fmt::format("translate({:.1f} {:.1f})", by.x, by.y)}}, body);
}

double text_width(std::size_t characters, double font_size) {
  return static_cast<double>(characters) * font_size * 0.6;
}

std::string numa_class(int numa_node) {
  constexpr int kColors = 8;
  return numa_node < 0 ? "box" : fmt::format("box numa{}", numa_node % kColors);
}

namespace {

constexpr std::string_view kStyle = R"(<style>
text { font-family: "DejaVu Sans", Verdana, Helvetica, Arial, sans-serif; fill: #222 }
.title { font-size: 20px; font-weight: bold }
.line { font-size: 13px; fill: #444 }
.name { font-size: 14px; font-weight: bold; text-anchor: middle }
.small { font-size: 11px; fill: #444; text-anchor: middle }
.label { font-size: 11px; font-weight: bold; text-anchor: middle }
.page { fill: #fdfdfb }
.box { fill: #eee; stroke: #555; stroke-width: 1.2 }
.plain { fill: #fff }
.switch { fill: #d5ecd0 }
.numa0 { fill: #dbe9f9 } .numa1 { fill: #fde8cd } .numa2 { fill: #dcf1df } .numa3 { fill: #f3dff0 }
.numa4 { fill: #fff4bf } .numa5 { fill: #d8f0f0 } .numa6 { fill: #f9dcd9 } .numa7 { fill: #e6e1f5 }
.old { stroke: #c22; stroke-width: 2; stroke-dasharray: 3 2 }
.nvlink { stroke: #4a9a3f; fill: none }
.oneway { stroke: #d4791c; stroke-dasharray: 12 3; fill: none }
.pcie { stroke: #5577aa; stroke-width: 1.5; stroke-dasharray: 6 4; fill: none }
.tag { fill: #fff; stroke: #bbb; stroke-width: 0.8 }
@media (prefers-color-scheme: dark) {
text { fill: #e8eaed }
.line, .small { fill: #c3cad2 }
.page { fill: #101317 }
.box { fill: #2b3138; stroke: #8b949e }
.plain { fill: #171b21 }
.switch { fill: #1f3d1c }
.numa0 { fill: #17314f } .numa1 { fill: #4a3210 } .numa2 { fill: #1c3f23 } .numa3 { fill: #43233e }
.numa4 { fill: #423b0c } .numa5 { fill: #123e3e } .numa6 { fill: #4a221e } .numa7 { fill: #312a52 }
.old { stroke: #ff7b72 }
.nvlink { stroke: #56b04a }
.oneway { stroke: #f0983f }
.pcie { stroke: #7ea6e0 }
.tag { fill: #1a1e24; stroke: #6a737d }
}
</style>
)";

/// Formats "8 x NVIDIA H200", or "2 x A, 6 x B" for different models.
std::string device_names(const Topology& topology) {
  std::vector<std::pair<std::string, std::size_t>> names;
  for (const DeviceInfo& device : topology.devices()) {
    const std::string& name = device.name.empty() ? "GPU" : device.name;
    const auto it =
        std::find_if(names.begin(), names.end(), [&](const auto& known) { return known.first == name; });
    if (it == names.end()) {
      names.emplace_back(name, 1);
    } else {
      ++it->second;
    }
  }
  std::string out;
  for (const auto& [name, count] : names)
    out += fmt::format("{}{} x {}", out.empty() ? "" : ", ", count, name);
  return out;
}

/// Breaks text at spaces into lines that fit the width; a longer word is not broken.
std::vector<std::string> broken(const std::string& text, double width, double font_size) {
  std::vector<std::string> lines;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (lines.empty() || text_width(lines.back().size() + 1 + word.size(), font_size) > width) {
      lines.push_back(word);
    } else {
      lines.back() += " " + word;
    }
  }
  return lines;
}

}  // namespace
}  // namespace svg

std::string Topology::to_svg() const {
  const bool host_only = devices_.empty();
  const svg::Picture picture = host_only ? svg::draw_host(host_) : svg::draw_devices(*this);
  const svg::Picture legend = host_only ? svg::Picture{} : svg::draw_legend(*this);
  const std::string title = host_only ? "Host " + host_.hostname : svg::device_names(*this);
  std::vector<std::string> facts;
  std::vector<std::string> machine{host_only ? "" : host_.hostname, host_.cpu_model};
  if (host_.cpus > 0) machine.push_back(render::processors(host_));
  std::erase(machine, "");
  if (!machine.empty()) facts.push_back(fmt::format("{}", fmt::join(machine, ", ")));
  facts.push_back("Connectivity: " + explain_connectivity());
  for (const std::string& note : notes_) facts.push_back("Note: " + note);

  constexpr double kMargin = 24;
  constexpr double kLeastWidth = 560;  // minimum width of text before it is wrapped
  double width =
      std::max({picture.size.width, legend.size.width, svg::text_width(title.size(), 20), kLeastWidth});
  std::vector<std::string> lines;
  for (const std::string& fact : facts) {
    for (std::string& line : svg::broken(fact, width, 13)) lines.push_back(std::move(line));
  }
  for (const std::string& line : lines) width = std::max(width, svg::text_width(line.size(), 13));
  std::string head = svg::text({kMargin, kMargin + 16}, "title", title);
  double y = kMargin + 16;
  for (const std::string& line : lines) head += svg::text({kMargin, y += 20}, "line", line);
  y += kMargin;

  const svg::Point picture_at{kMargin + (width - picture.size.width) / 2, y};
  y += picture.size.height + kMargin;
  const svg::Point legend_at{kMargin, y};  // in line with the text above, whatever the width of the picture
  if (legend.size.height > 0) y += legend.size.height + kMargin;

  const svg::Size size{width + 2 * kMargin, y};
  const std::string page_width = fmt::format("{:.0f}", size.width);
  const std::string page_height = fmt::format("{:.0f}", size.height);
  std::string body = fmt::format("\n{}", svg::kStyle);
  body += markup::element("rect", {{"width", page_width}, {"height", page_height}, {"class", "page"}}) + "\n";
  body += head + svg::moved(picture_at, "\n" + picture.body) + "\n";
  if (!legend.body.empty()) body += svg::moved(legend_at, "\n" + legend.body) + "\n";
  return markup::element("svg",
                         {{"xmlns", "http://www.w3.org/2000/svg"},
                          {"width", page_width},
                          {"height", page_height},
                          {"viewBox", fmt::format("0 0 {} {}", page_width, page_height)}},
                         body) +
         "\n";
}

}  // namespace onehop
