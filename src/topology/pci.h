// SPDX-License-Identifier: Apache-2.0
// Where PCI devices sit: their NUMA nodes and the distances between them, as hwloc sees them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "onehop/topology.h"

struct hwloc_topology;

namespace onehop {

using Machine = std::unique_ptr<hwloc_topology, void (*)(hwloc_topology*)>;

/// This whole machine with its PCI devices, or nullptr with errno set.
[[nodiscard]] Machine load_pci_machine();

struct PciPlaces {
  std::vector<int> numa_nodes;  ///< of each device; -1: not known
  std::vector<PciPath> paths;   ///< devices x devices, row major
  std::vector<std::string> notes;
};

/// Looks the devices with these PCI bus ids ("00000000:19:00.0") up in a loaded machine. nullptr is a machine
/// of which nothing is known.
[[nodiscard]] PciPlaces locate(hwloc_topology* machine, const std::vector<std::string>& bus_ids);

}  // namespace onehop
