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

/// A part of the drawing together with how much room it takes, from (0, 0).
struct Picture {
  Size size;
  std::string body;
};

/// A text element; `style` is a class of the drawing's style sheet.
[[nodiscard]] std::string text(Point at, std::string_view style, std::string_view content);
/// `body`, moved by `by`.
[[nodiscard]] std::string moved(Point by, std::string_view body);
/// About how wide a text of that many characters is.
[[nodiscard]] double text_width(std::size_t characters, double font_size);
/// Class of boxes that belong to a NUMA node, which gives them their colour; grey for an unknown one (-1).
[[nodiscard]] std::string numa_class(int numa_node);

/// GPUs on a circle with their links, and a legend.
[[nodiscard]] Picture draw_devices(const Topology& topology);
/// Processors inside their caches inside their NUMA nodes.
[[nodiscard]] Picture draw_host(const HostInfo& host);

}  // namespace onehop::svg
