// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "base/markup.h"
#include "base/units.h"
#include "topology/render.h"
#include "topology/svg.h"

namespace onehop::svg {
namespace {

constexpr double kGap = 8;
constexpr double kLineHeight = 15;
constexpr int kMaxDepth = 16;  ///< bounds the recursion for any nesting that a file declares

/// A set of processors that share a cache or NUMA node, or a single processor (`lines` is then its number).
struct Region {
  std::vector<int> cpus;
  std::vector<std::string> lines;
  std::string style;  ///< style classes of its frame
  bool cpu = false;
  int depth = 0;
  std::vector<std::size_t> children;  ///< indices into the list of regions
};

/// Returns NUMA nodes and caches, the larger first. Those of the same processors (an L2 and its L1) are
/// merged into one region.
std::vector<Region> shared_regions(const HostInfo& host) {
  std::vector<Region> all;
  for (const NumaNode& node : host.numa_nodes) {
    const std::string line = fmt::format("NUMA node {}: {}", node.id, human_bytes(node.memory_bytes));
    all.push_back({node.cpus, {line}, numa_class(node.id), false, 0, {}});
  }
  std::vector<CacheInfo> caches = host.caches;
  std::stable_sort(caches.begin(), caches.end(),
                   [](const auto& a, const auto& b) { return a.level > b.level; });
  for (const CacheInfo& cache : caches) {
    if (cache.cpus.empty()) continue;
    const std::string line = fmt::format("L{}: {}", cache.level, human_bytes(cache.bytes));
    all.push_back({cache.cpus, {line}, "box plain", false, 0, {}});
  }
  std::stable_sort(all.begin(), all.end(), [](const Region& a, const Region& b) {
    return std::tuple(b.cpus.size(), a.cpus) < std::tuple(a.cpus.size(), b.cpus);
  });
  std::vector<Region> merged;  // equal sets are adjacent
  for (Region& region : all) {
    const bool same = !merged.empty() && !region.cpus.empty() && merged.back().cpus == region.cpus;
    if (same) {
      merged.back().lines.push_back(region.lines.front());
    } else {
      merged.push_back(std::move(region));
    }
  }
  return merged;
}

void add_processors(std::vector<Region>& regions) {
  std::vector<int> cpus;
  for (const Region& region : regions) cpus.insert(cpus.end(), region.cpus.begin(), region.cpus.end());
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  for (const int cpu : cpus) regions.push_back({{cpu}, {fmt::format("{}", cpu)}, "box plain", true, 0, {}});
}

bool contains(const Region& outer, const Region& inner) {
  if (inner.cpus.empty() || outer.cpus.size() < inner.cpus.size()) return false;
  if (inner.cpu) return std::binary_search(outer.cpus.begin(), outer.cpus.end(), inner.cpus.front());
  return std::includes(outer.cpus.begin(), outer.cpus.end(), inner.cpus.begin(), inner.cpus.end());
}

/// Attaches each region to the smallest one that contains it; returns the regions without a parent.
std::vector<std::size_t> build_tree(std::vector<Region>& regions) {
  std::vector<std::size_t> roots;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    std::size_t end = i;  // the parent is the one before `end`
    while (end > 0 && (regions[end - 1].depth >= kMaxDepth || regions[end - 1].cpu ||
                       !contains(regions[end - 1], regions[i]))) {
      --end;
    }
    if (end == 0) {
      roots.push_back(i);
    } else {
      regions[end - 1].children.push_back(i);
      regions[i].depth = regions[end - 1].depth + 1;
    }
  }
  return roots;
}

Picture draw_region(const std::vector<Region>& regions, const Region& region);

/// Draws the members in a grid of equal cells that is somewhat wider than high.
Picture draw_grid(const std::vector<Region>& regions, const std::vector<std::size_t>& members) {
  if (members.empty()) return {};
  std::vector<Picture> pictures;
  Size cell;
  for (const std::size_t i : members) {
    pictures.push_back(draw_region(regions, regions[i]));
    cell = {std::max(cell.width, pictures.back().size.width),
            std::max(cell.height, pictures.back().size.height)};
  }
  const double shape = regions[members.front()].cpu ? 4 : 1.7;  // hardware threads of a core form a row
  const double ideal = std::sqrt(static_cast<double>(members.size()) * shape * cell.height / cell.width);
  const std::size_t columns =
      std::clamp(static_cast<std::size_t>(std::lround(ideal)), std::size_t{1}, members.size());
  const std::size_t rows = (members.size() + columns - 1) / columns;
  Picture grid;
  grid.size = {static_cast<double>(columns) * (cell.width + kGap) - kGap,
               static_cast<double>(rows) * (cell.height + kGap) - kGap};
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    const std::size_t row = i / columns;
    const Point at{static_cast<double>(i % columns) * (cell.width + kGap),
                   static_cast<double>(row) * (cell.height + kGap)};
    grid.body += moved(at, "\n" + pictures[i].body) + "\n";
  }
  return grid;
}

std::string frame(Size size, int radius, std::string_view style) {
  return markup::element("rect",
                         {{"width", size.width}, {"height", size.height}, {"rx", radius}, {"class", style}}) +
         "\n";
}

/// Draws a frame with its lines of text at the top and its children below.
Picture draw_region(const std::vector<Region>& regions, const Region& region) {
  if (region.cpu) {
    constexpr Size kCpu{38, 22};
    return {kCpu, frame(kCpu, 3, region.style) + text({kCpu.width / 2, 15}, "small", region.lines.front())};
  }
  const Picture inside = draw_grid(regions, region.children);
  Size size = inside.size;
  for (const std::string& line : region.lines) size.width = std::max(size.width, text_width(line.size(), 11));
  size.width += 2 * kGap;
  const double top = kGap + kLineHeight * static_cast<double>(region.lines.size());
  size.height = top + inside.size.height + (region.children.empty() ? 0 : kGap);

  std::string body = frame(size, 5, region.style);
  for (std::size_t i = 0; i < region.lines.size(); ++i) {
    body += text({size.width / 2, kLineHeight * static_cast<double>(i + 1)}, "small", region.lines[i]);
  }
  body += moved({(size.width - inside.size.width) / 2, top}, "\n" + inside.body) + "\n";
  return {size, body};
}

}  // namespace

Picture draw_host(const HostInfo& host) {
  std::vector<Region> regions = shared_regions(host);
  add_processors(regions);
  const std::vector<std::size_t> roots = build_tree(regions);
  return draw_grid(regions, roots);
}

}  // namespace onehop::svg
