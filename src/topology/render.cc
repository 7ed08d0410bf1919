// SPDX-License-Identifier: Apache-2.0
#include "topology/render.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "driver/capability.h"

namespace onehop::render {

std::string ranges(const std::vector<int>& ascending) {
  std::string out;
  for (std::size_t first = 0; first < ascending.size();) {
    std::size_t last = first;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    if (!out.empty()) out += ',';
    out += first == last ? fmt::format("{}", ascending[first])
                         : fmt::format("{}-{}", ascending[first], ascending[last]);
    first = last + 1;
  }
  return out;
}

std::string link_label(const PairInfo& pair) {
  if (pair.path == PciPath::self) return "X";
  if (pair.nvlinks > 0) return fmt::format("NV{}", pair.nvlinks);
  if (pair.path == PciPath::unknown) return "?";
  std::string label(to_string(pair.path));
  std::transform(label.begin(), label.end(), label.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return label;
}

bool too_old(const DeviceInfo& device) {
  return device.compute_capability > 0 && device.compute_capability < kOldestCapability;
}

std::string counted(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string processors(const HostInfo& host) {
  return fmt::format("{}, {}", counted(static_cast<std::size_t>(host.cores), "core"),
                     counted(static_cast<std::size_t>(host.cpus), "cpu"));
}

std::vector<int> device_numa_nodes(const Topology& topology) {
  std::vector<int> nodes;
  for (const DeviceInfo& device : topology.devices()) {
    if (device.numa_node >= 0) nodes.push_back(device.numa_node);
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

}  // namespace onehop::render
