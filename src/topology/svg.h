// SPDX-License-Identifier: Apache-2.0
// Building blocks of the drawing. All coordinates are in pixels from the top left.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "onehop/topology.h"

namespace onehop::svg {

struct Point {
  double x = 0;
  double y = 0;
};

struct Size {
  double width = 0;
  double height = 0;
};

/// A part of the drawing and its size, with the origin at (0, 0).
struct Picture {
  Size size;
  std::string body;
};

/// Returns a text element; `style` is a class of the drawing's style sheet.
[[nodiscard]] std::string text(Point at, std::string_view style, std::string_view content);
/// Returns `body` moved by `by`.
[[nodiscard]] std::string moved(Point by, std::string_view body);
/// Approximate width of a text with this many characters.
[[nodiscard]] double text_width(std::size_t characters, double font_size);
/// The style class of boxes of a NUMA node, which sets their color; gray for an unknown one (-1).
[[nodiscard]] std::string numa_class(int numa_node);

/// Draws the GPUs on a circle with their links.
[[nodiscard]] Picture draw_devices(const Topology& topology);
/// Draws the legend of the lines and colors that draw_devices() uses.
[[nodiscard]] Picture draw_legend(const Topology& topology);
/// Draws the processors inside their caches inside their NUMA nodes.
[[nodiscard]] Picture draw_host(const HostInfo& host);

}  // namespace onehop::svg
