// SPDX-License-Identifier: Apache-2.0
#include "topology/pci.h"

#include <hwloc.h>

#include <algorithm>

#include "base/check.h"

namespace onehop {
namespace {

/// Returns the NUMA nodes that `object` is attached to, or nullptr if the system does not report them: hwloc
/// then attaches the object to the whole machine.
hwloc_const_nodeset_t nodes_of(hwloc_topology* machine, hwloc_obj_t object) {
  hwloc_obj_t ancestor = hwloc_get_non_io_ancestor_obj(machine, object);
  if (ancestor == nullptr || ancestor->nodeset == nullptr || hwloc_bitmap_iszero(ancestor->nodeset))
    return nullptr;
  const bool everywhere = ancestor->type == HWLOC_OBJ_MACHINE && hwloc_bitmap_weight(ancestor->nodeset) > 1;
  return everywhere ? nullptr : ancestor->nodeset;
}

int numa_node_of(hwloc_topology* machine, hwloc_obj_t object) {
  hwloc_const_nodeset_t const nodes = nodes_of(machine, object);
  return nodes != nullptr && hwloc_bitmap_weight(nodes) == 1 ? hwloc_bitmap_first(nodes) : -1;
}

bool is_host_bridge(hwloc_obj_t object) {
  return object->type == HWLOC_OBJ_BRIDGE && object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
}

/// Classifies the path between two devices; the classes are those of `nvidia-smi topo`.
PciPath path_between(hwloc_topology* machine, hwloc_obj_t a, hwloc_obj_t b) {
  std::vector<hwloc_obj_t> above_a;
  for (hwloc_obj_t object = a->parent; object != nullptr; object = object->parent) above_a.push_back(object);
  std::size_t bridges_b = 0;
  for (hwloc_obj_t object = b->parent; object != nullptr; object = object->parent, ++bridges_b) {
    const auto common = std::find(above_a.begin(), above_a.end(), object);
    if (common == above_a.end()) continue;
    if (is_host_bridge(object)) return PciPath::phb;
    if (object->type == HWLOC_OBJ_BRIDGE) {
      // Below the upstream port of a single switch, each device is behind exactly one downstream port.
      const auto bridges_a = static_cast<std::size_t>(common - above_a.begin());
      return bridges_a <= 1 && bridges_b <= 1 ? PciPath::pix : PciPath::pxb;
    }
    break;
  }
  hwloc_const_nodeset_t const nodes_a = nodes_of(machine, a);
  hwloc_const_nodeset_t const nodes_b = nodes_of(machine, b);
  if (nodes_a == nullptr || nodes_b == nullptr) return PciPath::unknown;
  if (hwloc_bitmap_isequal(nodes_a, nodes_b)) return PciPath::node;
  return hwloc_bitmap_intersects(nodes_a, nodes_b) ? PciPath::unknown : PciPath::sys;
}

}  // namespace

Machine load_pci_machine() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {nullptr, &hwloc_topology_destroy};
  Machine machine(raw, &hwloc_topology_destroy);
  // Load the whole machine: a device's NUMA node may be one that this process must not use.
  constexpr unsigned long kFlags = HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM | HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED;
  // Avoid libpciaccess, which allocates process-wide state and leaks it. /sys provides the same information.
  constexpr unsigned long kWithout = HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST;
  const bool loaded =
      hwloc_topology_set_flags(raw, kFlags) == 0 &&
      hwloc_topology_set_components(raw, kWithout, "pci") == 0 &&
      hwloc_topology_set_type_filter(raw, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
      hwloc_topology_set_type_filter(raw, HWLOC_OBJ_BRIDGE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
      hwloc_topology_load(raw) == 0;
  if (!loaded) machine.reset();
  return machine;
}

PciLocations locate(hwloc_topology* machine, const std::vector<std::string>& bus_ids) {
  const std::size_t count = bus_ids.size();
  PciLocations locations{.numa_nodes = std::vector<int>(count, -1),
                         .paths = std::vector<PciPath>(count * count, PciPath::unknown),
                         .notes = {}};
  std::vector<hwloc_obj_t> objects;
  std::string missing;
  for (const std::string& bus_id : bus_ids) {
    objects.push_back(machine != nullptr ? hwloc_get_pcidev_by_busidstring(machine, bus_id.c_str())
                                         : nullptr);
    if (objects.back() == nullptr) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", bus_id);
  }
  for (std::size_t from = 0; from < count; ++from) {
    if (objects[from] != nullptr) locations.numa_nodes[from] = numa_node_of(machine, objects[from]);
    for (std::size_t to = 0; to < count; ++to) {
      PciPath& path = locations.paths[from * count + to];
      if (from == to) {
        path = PciPath::self;
      } else if (objects[from] != nullptr && objects[to] != nullptr) {
        path = path_between(machine, objects[from], objects[to]);
      }
    }
  }
  if (!missing.empty())
    locations.notes.push_back(fmt::format(
        "the system does not show the PCI devices {}: their NUMA nodes and distances are not known",
        missing));
  return locations;
}

}  // namespace onehop
