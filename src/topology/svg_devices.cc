// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <optional>
#include <vector>

#include "base/markup.h"
#include "base/units.h"
#include "driver/capability.h"
#include "topology/render.h"
#include "topology/svg.h"

namespace onehop::svg {
namespace {

using markup::element;
using markup::escape;

constexpr Size kBox{112, 46};
constexpr int kMostLabeled = 10;   ///< beyond this number, labels would hide the lines of a mesh
constexpr int kMostArranged = 16;  ///< beyond this number, no order of the devices makes a mesh readable

/// Both directions between two devices, drawn as one line.
struct Edge {
  int a = 0;
  int b = 0;
  const PairInfo* there = nullptr;
  const PairInfo* back = nullptr;

  [[nodiscard]] bool nvlink() const { return there->nvlinks > 0 || back->nvlinks > 0; }
  [[nodiscard]] bool one_way() const { return nvlink() && (there->nvlinks == 0 || back->nvlinks == 0); }
  /// No line is drawn between peers without access to each other's memory.
  [[nodiscard]] bool visible() const { return nvlink() || there->peer_access || back->peer_access; }
  [[nodiscard]] std::string label() const {
    if (there->nvlinks == back->nvlinks) return render::link_label(*there);
    const auto links = [](const PairInfo& pair) {
      return pair.nvlinks < 0 ? "?" : std::to_string(pair.nvlinks);
    };
    return fmt::format("NV{}/{}", links(*there), links(*back));
  }
};

std::vector<Edge> edges_of(const Topology& topology) {
  std::vector<Edge> edges;
  for (int a = 0; a < topology.device_count(); ++a) {
    for (int b = a + 1; b < topology.device_count(); ++b) {
      edges.push_back(
          {a, b, &topology.pair(DeviceId{a}, DeviceId{b}), &topology.pair(DeviceId{b}, DeviceId{a})});
    }
  }
  return edges;
}

/// Returns the number of links that all pairs share, if it is so high that only an NVSwitch can explain it
/// (GPUs without one had at most 6 per pair). A single fabric is then clearer than a mesh of lines.
std::optional<int> switch_fabric(const std::vector<Edge>& edges) {
  if (edges.size() < 3) return std::nullopt;
  const int links = edges.front().there->nvlinks;
  const bool equal = std::all_of(edges.begin(), edges.end(), [&](const Edge& edge) {
    return edge.there->nvlinks == links && edge.back->nvlinks == links;
  });
  return equal && links >= 8 ? std::optional(links) : std::nullopt;
}

/// Computes the positions on the circle, slot[device]: the natural order, improved by swaps that bring linked
/// devices together.
std::vector<int> slots_of(int devices, const std::vector<Edge>& edges) {
  std::vector<int> slot(static_cast<std::size_t>(devices));
  std::iota(slot.begin(), slot.end(), 0);
  const auto cost = [&] {
    double sum = 0;
    for (const Edge& edge : edges) {
      const int apart = slot[static_cast<std::size_t>(edge.a)] - slot[static_cast<std::size_t>(edge.b)];
      sum += std::max(edge.there->nvlinks, edge.back->nvlinks) *
             std::abs(std::sin(std::numbers::pi * apart / devices));
    }
    return sum;
  };
  if (devices > kMostArranged) return slot;
  double best = cost();
  for (bool improved = true; improved;) {
    improved = false;
    for (std::size_t i = 0; i < slot.size(); ++i) {
      for (std::size_t j = i + 1; j < slot.size(); ++j) {
        std::swap(slot[i], slot[j]);
        const double now = cost();
        if (now < best - 1e-6) {
          best = now;
          improved = true;
        } else {
          std::swap(slot[i], slot[j]);
        }
      }
    }
  }
  const int first = slot.front();
  for (int& position : slot) position = (position - first + devices) % devices;
  return slot;
}

Point between(Point a, Point b, double t) {
  return {a.x + (b.x - a.x) * t, a.y + (b.y - a.y) * t};
}

std::string line(Point a, Point b, std::string_view style, double width) {
  return element("line", {{"x1", a.x},
                          {"y1", a.y},
                          {"x2", b.x},
                          {"y2", b.y},
                          {"class", style},
                          {"stroke-width", width}}) +
         "\n";
}

double link_width(int links) {
  return 1.5 + 0.4 * std::min(links, 18);
}

std::string rectangle(Point centre, Size size, int radius, std::string_view style) {
  return element("rect", {{"x", centre.x - size.width / 2},
                          {"y", centre.y - size.height / 2},
                          {"width", size.width},
                          {"height", size.height},
                          {"rx", radius},
                          {"class", style}}) +
         "\n";
}

/// Places labels on lines and avoids overlaps where possible.
class Labels {
 public:
  void put(Point a, Point b, const std::string& content) {
    const Size size{text_width(content.size(), 11) + 10, 17};
    Point at = between(a, b, 0.5);
    for (const double t : {0.5, 0.42, 0.58, 0.35, 0.65, 0.29, 0.71}) {
      const Point candidate = between(a, b, t);
      const bool free = std::none_of(placed_.begin(), placed_.end(), [&](const Point& other) {
        return std::abs(other.x - candidate.x) < size.width + 2 &&
               std::abs(other.y - candidate.y) < size.height + 2;
      });
      if (!free) continue;
      at = candidate;
      break;
    }
    placed_.push_back(at);
    body_ += rectangle(at, size, 4, "tag") + text({at.x, at.y + 4}, "label", content);
  }
  [[nodiscard]] const std::string& body() const { return body_; }

 private:
  std::vector<Point> placed_;
  std::string body_;
};

std::string device_box(const DeviceInfo& device, int index, Point centre) {
  const std::string style = numa_class(device.numa_node) + (render::too_old(device) ? " old" : "");
  // Domain 0, which nearly every machine uses, is omitted: "19:00.0".
  std::string_view bus = device.pci_bus_id;
  if (bus.starts_with("00000000:")) bus.remove_prefix(9);
  const bool bare = bus.empty();
  const std::string memory = device.memory_bytes == 0 ? "" : human_bytes(device.memory_bytes);
  std::string out =
      element("title", {}, escape(device.name) + "\n" + escape(device.uuid) + "\n" + memory) + "\n";
  out += rectangle(centre, kBox, 8, style);
  out += text({centre.x, centre.y + (bare ? 5 : -3)}, "name", fmt::format("GPU {}", index));
  if (!bare) out += text({centre.x, centre.y + 14}, "small", bus);
  return element("g", {}, out) + "\n";
}

}  // namespace

Picture draw_devices(const Topology& topology) {
  const int devices = topology.device_count();
  const std::vector<Edge> edges = edges_of(topology);
  const std::optional<int> fabric = switch_fabric(edges);
  const std::vector<int> slots = slots_of(devices, edges);

  // Keep a box and a label between neighbors on the circle.
  const double radius =
      devices == 1 ? 0 : std::max(150.0, 200.0 / (2 * std::sin(std::numbers::pi / devices)));
  const Size circle{2 * radius + kBox.width + 10, 2 * radius + kBox.height + 10};
  // Two devices are placed side by side. Otherwise an even number starts half a step from the top, so that
  // four form a square.
  const double start = devices == 2
                           ? std::numbers::pi
                           : -std::numbers::pi / 2 - (devices % 2 == 0 ? std::numbers::pi / devices : 0);
  const double height = devices <= 2 ? kBox.height + 10 : circle.height;
  std::vector<Point> centres;
  for (const int slot : slots) {
    const double angle = start + 2 * std::numbers::pi * slot / devices;
    centres.push_back({circle.width / 2 + radius * std::cos(angle), height / 2 + radius * std::sin(angle)});
  }

  std::string lines;
  Labels labels;
  if (fabric) {
    const Point hub{circle.width / 2, height / 2};
    for (const Point& centre : centres) {
      lines += line(hub, centre, "nvlink", link_width(*fabric));
      labels.put(hub, centre, fmt::format("NV{}", *fabric));
    }
    lines += rectangle(hub, {150, 60}, 14, "box switch");
    lines += text({hub.x, hub.y - 2}, "name", "NVSwitch fabric") +
             text({hub.x, hub.y + 16}, "small", fmt::format("{} links per pair", *fabric));
  } else {
    for (const Edge& edge : edges) {
      if (!edge.visible()) continue;
      const Point a = centres[static_cast<std::size_t>(edge.a)];
      const Point b = centres[static_cast<std::size_t>(edge.b)];
      const std::string_view style = edge.one_way() ? "oneway" : edge.nvlink() ? "nvlink" : "pcie";
      lines += line(a, b, style,
                    edge.nvlink() ? link_width(std::max(edge.there->nvlinks, edge.back->nvlinks)) : 1.5);
      if (devices <= kMostLabeled && edge.label() != "?") labels.put(a, b, edge.label());
    }
  }

  std::string boxes;
  for (int i = 0; i < devices; ++i) {
    boxes += device_box(topology.device(DeviceId{i}), i, centres[static_cast<std::size_t>(i)]);
  }
  return {{circle.width, height}, lines + boxes + labels.body()};
}

Picture draw_legend(const Topology& topology) {
  const std::vector<Edge> edges = edges_of(topology);
  Picture legend;
  const auto add = [&](const std::string& sign, const std::string& meaning) {
    const double y = legend.size.height + 10;
    legend.body += element("g", {{"transform", fmt::format("translate(0 {:.1f})", y)}}, sign) + "\n";
    legend.body += text({58, y + 4}, "line", meaning);
    legend.size = {std::max(legend.size.width, 58 + text_width(meaning.size(), 13)), legend.size.height + 22};
  };
  const auto any = [&](auto&& condition) { return std::any_of(edges.begin(), edges.end(), condition); };
  if (any([](const Edge& e) { return e.nvlink() && !e.one_way(); })) {
    add(line({0, 0}, {46, 0}, "nvlink", link_width(4)), "NVLink, both directions; wider: more links");
  }
  if (any([](const Edge& e) { return e.one_way(); })) {
    add(line({0, 0}, {46, 0}, "oneway", link_width(4)), "NVLink in one direction only");
  }
  if (any([](const Edge& e) { return e.visible() && !e.nvlink(); })) {
    add(line({0, 0}, {46, 0}, "pcie", 1.5), "peer access over PCIe");
  }
  if (any([](const Edge& e) { return !e.visible(); })) add("", "no line: no peer access");
  for (const int node : render::device_numa_nodes(topology)) {
    std::vector<int> devices;
    for (int i = 0; i < topology.device_count(); ++i) {
      if (topology.device(DeviceId{i}).numa_node == node) devices.push_back(i);
    }
    add(rectangle({23, 0}, {46, 14}, 3, numa_class(node)),
        fmt::format("NUMA node {}: GPU {}", node, render::ranges(devices)));
  }
  if (std::any_of(topology.devices().begin(), topology.devices().end(), render::too_old)) {
    add(rectangle({23, 0}, {46, 14}, 3, "box old"),
        fmt::format("too old: onehop needs compute capability {}.{} or newer", kOldestCapability / 10,
                    kOldestCapability % 10));
  }
  return legend;
}

}  // namespace onehop::svg
