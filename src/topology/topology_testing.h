// SPDX-License-Identifier: Apache-2.0
// Utilities of this layer's tests.
#pragma once

#include <hwloc.h>

#include <string>
#include <utility>

#include "onehop/topology.h"

#include "support/errors.h"
#include "topology/pci.h"

namespace onehop {

using testing::message_of;

inline std::string shipped_path(const std::string& name) {
  return std::string(ONEHOP_TEST_TOPOLOGIES "/") + name;
}

/// Loads a topology of tests/data/topology by its name without ".json".
inline Topology shipped(const std::string& name) {
  return Topology::load(shipped_path(name + ".json"));
}

/// Loads one of tests/data/topology/*.xml with hwloc: a machine's PCI devices.
inline Machine machine_from_xml(const std::string& name) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {nullptr, &hwloc_topology_destroy};
  Machine machine(raw, &hwloc_topology_destroy);
  const bool loaded = hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
                      hwloc_topology_set_xml(raw, shipped_path(name + ".xml").c_str()) == 0 &&
                      hwloc_topology_load(raw) == 0;
  if (!loaded) machine.reset();
  return machine;
}

inline constexpr const char* kShipped[] = {"h100x8",           "h200x4",      "pcie4",
                                           "hybrid_cube_mesh", "two_islands", "host_only"};

inline DeviceInfo device_named(std::string uuid, std::string name = {}) {
  DeviceInfo device;
  device.uuid = std::move(uuid);
  device.name = std::move(name);
  return device;
}

}  // namespace onehop
