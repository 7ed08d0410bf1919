// SPDX-License-Identifier: Apache-2.0
// Location of PCI devices: their NUMA nodes and the distances between them, as reported by hwloc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "onehop/topology.h"

struct hwloc_topology;

namespace onehop {

using Machine = std::unique_ptr<hwloc_topology, void (*)(hwloc_topology*)>;

/// Loads this whole machine with its PCI devices. Returns nullptr and sets errno on failure.
[[nodiscard]] Machine load_pci_machine();

struct PciLocations {
  std::vector<int> numa_nodes;  ///< of each device; -1: unknown
  std::vector<PciPath> paths;   ///< devices x devices, row major
  std::vector<std::string> notes;
};

/// Looks up the devices with these PCI bus ids ("00000000:19:00.0") in a loaded machine. For nullptr, all
/// results are unknown.
[[nodiscard]] PciLocations locate(hwloc_topology* machine, const std::vector<std::string>& bus_ids);

}  // namespace onehop
