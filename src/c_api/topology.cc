// SPDX-License-Identifier: Apache-2.0
#include "onehop/topology.h"

#include <vector>

#include "onehop/c_api.h"

#include "c_api/convert.h"
#include "c_api/guard.h"

using namespace onehop;
using namespace onehop::c_api;

static_assert(ONEHOP_FABRIC_STATE_UNSUPPORTED == static_cast<int>(FabricState::unsupported));
static_assert(ONEHOP_FABRIC_STATE_NOT_STARTED == static_cast<int>(FabricState::not_started));
static_assert(ONEHOP_FABRIC_STATE_IN_PROGRESS == static_cast<int>(FabricState::in_progress));
static_assert(ONEHOP_FABRIC_STATE_COMPLETED == static_cast<int>(FabricState::completed));
static_assert(ONEHOP_CONNECTIVITY_UNKNOWN == static_cast<int>(Connectivity::unknown));
static_assert(ONEHOP_CONNECTIVITY_FULLY_CONNECTED == static_cast<int>(Connectivity::fully_connected));
static_assert(ONEHOP_PCI_PATH_SELF == static_cast<int>(PciPath::self));
static_assert(ONEHOP_PCI_PATH_PIX == static_cast<int>(PciPath::pix));
static_assert(ONEHOP_PCI_PATH_PXB == static_cast<int>(PciPath::pxb));
static_assert(ONEHOP_PCI_PATH_PHB == static_cast<int>(PciPath::phb));
static_assert(ONEHOP_PCI_PATH_NODE == static_cast<int>(PciPath::node));
static_assert(ONEHOP_PCI_PATH_SYS == static_cast<int>(PciPath::sys));
static_assert(ONEHOP_PCI_PATH_UNKNOWN == static_cast<int>(PciPath::unknown));

struct onehop_topology {
  Topology topology;
};

namespace {

const Topology& in(const onehop_topology_t* topology) {
  return deref(topology, "topology").topology;
}

}  // namespace

extern "C" {

onehop_status_t onehop_topology_probe_json(char** json) {
  return produce(json, "json", [] { return copy_out(Topology::probe().to_json()); });
}

onehop_status_t onehop_topology_probe(onehop_topology_t** topology) {
  return produce(topology, "topology", [] { return new onehop_topology{Topology::probe()}; });
}

onehop_status_t onehop_topology_from_json(const char* json, onehop_topology_t** topology) {
  return produce(topology, "topology",
                 [&] { return new onehop_topology{Topology::from_json(text(json, "json"))}; });
}

onehop_status_t onehop_topology_load(const char* path, onehop_topology_t** topology) {
  return produce(topology, "topology",
                 [&] { return new onehop_topology{Topology::load(text(path, "path"))}; });
}

void onehop_topology_destroy(onehop_topology_t* topology) {
  delete topology;
}

onehop_status_t onehop_topology_to_json(const onehop_topology_t* topology, char** json) {
  return produce(json, "json", [&] { return copy_out(in(topology).to_json()); });
}

onehop_status_t onehop_topology_to_text(const onehop_topology_t* topology, char** text) {
  return produce(text, "text", [&] { return copy_out(in(topology).to_text()); });
}

onehop_status_t onehop_topology_to_svg(const onehop_topology_t* topology, char** svg) {
  return produce(svg, "svg", [&] { return copy_out(in(topology).to_svg()); });
}

size_t onehop_topology_note_count(const onehop_topology_t* topology) {
  return topology == nullptr ? 0 : topology->topology.notes().size();
}

const char* onehop_topology_note(const onehop_topology_t* topology, size_t index) {
  return index < onehop_topology_note_count(topology) ? topology->topology.notes()[index].c_str() : nullptr;
}

void onehop_host_info_init(onehop_host_info_t* host, size_t size) {
  init_options(host, size, onehop_host_info_t{});
}

onehop_status_t onehop_topology_host(const onehop_topology_t* topology, onehop_host_info_t* host) {
  return answer(host, "host", [&](onehop_host_info_t& out) {
    const HostInfo& found = in(topology).host();
    out.hostname = found.hostname.c_str();
    out.cpu_model = found.cpu_model.c_str();
    out.cores = found.cores;
    out.cpus = found.cpus;
    out.numa_node_count = found.numa_nodes.size();
    out.cache_count = found.caches.size();
  });
}

void onehop_numa_node_init(onehop_numa_node_t* node, size_t size) {
  init_options(node, size, onehop_numa_node_t{});
}

onehop_status_t onehop_topology_numa_node(const onehop_topology_t* topology, size_t index,
                                          onehop_numa_node_t* node) {
  return answer(node, "node", [&](onehop_numa_node_t& out) {
    const NumaNode& found = entry(in(topology).host().numa_nodes, index, "NUMA node");
    out.id = found.id;
    out.memory_bytes = found.memory_bytes;
    out.cpus = found.cpus.data();
    out.cpu_count = found.cpus.size();
  });
}

void onehop_cache_info_init(onehop_cache_info_t* cache, size_t size) {
  init_options(cache, size, onehop_cache_info_t{});
}

onehop_status_t onehop_topology_cache(const onehop_topology_t* topology, size_t index,
                                      onehop_cache_info_t* cache) {
  return answer(cache, "cache", [&](onehop_cache_info_t& out) {
    const CacheInfo& found = entry(in(topology).host().caches, index, "cache");
    out.level = found.level;
    out.bytes = found.bytes;
    out.cpus = found.cpus.data();
    out.cpu_count = found.cpus.size();
  });
}

void onehop_device_info_init(onehop_device_info_t* info, size_t size) {
  init_options(info, size, onehop_device_info_t{});
}

int onehop_topology_device_count(const onehop_topology_t* topology) {
  return topology == nullptr ? 0 : topology->topology.device_count();
}

onehop_status_t onehop_topology_device(const onehop_topology_t* topology, int device,
                                       onehop_device_info_t* info) {
  return answer(info, "info", [&](onehop_device_info_t& out) {
    const DeviceInfo& found = in(topology).device(DeviceId{device});
    out.uuid = found.uuid.c_str();
    out.name = found.name.c_str();
    out.pci_bus_id = found.pci_bus_id.c_str();
    out.numa_node = found.numa_node;
    out.compute_capability = found.compute_capability;
    out.memory_bytes = found.memory_bytes;
    out.fabric = static_cast<onehop_fabric_state_t>(found.fabric);
    out.fabric_cluster = found.fabric_cluster.c_str();
    out.fabric_clique = found.fabric_clique;
    out.fabric_handles = found.fabric_handles ? 1 : 0;
    out.fabric_note = found.fabric_note.c_str();
    out.multicast_supported = found.multicast_supported ? 1 : 0;
  });
}

void onehop_pair_info_init(onehop_pair_info_t* info, size_t size) {
  init_options(info, size, onehop_pair_info_t{});
}

onehop_status_t onehop_topology_pair(const onehop_topology_t* topology, int from, int to,
                                     onehop_pair_info_t* info) {
  return answer(info, "info", [&](onehop_pair_info_t& out) {
    const PairInfo& found = in(topology).pair(DeviceId{from}, DeviceId{to});
    out.nvlinks = found.nvlinks;
    out.peer_access = found.peer_access ? 1 : 0;
    out.native_atomics = found.native_atomics ? 1 : 0;
    out.array_access = found.array_access ? 1 : 0;
    out.performance_rank = found.performance_rank;
    out.path = static_cast<onehop_pci_path_t>(found.path);
  });
}

onehop_status_t onehop_topology_connectivity(const onehop_topology_t* topology, const int* devices,
                                             size_t count, onehop_connectivity_t* connectivity) {
  return guard([&] {
    const Topology& of = in(topology);
    onehop_connectivity_t& out = deref(connectivity, "connectivity");
    out = static_cast<onehop_connectivity_t>(
        devices == nullptr ? of.connectivity() : of.connectivity(to_devices(devices, count)));
  });
}

onehop_status_t onehop_topology_explain_connectivity(const onehop_topology_t* topology, const int* devices,
                                                     size_t count, char** text) {
  return produce(text, "text", [&] {
    const Topology& of = in(topology);
    return copy_out(devices == nullptr ? of.explain_connectivity()
                                       : of.explain_connectivity(to_devices(devices, count)));
  });
}

const char* onehop_fabric_state_name(onehop_fabric_state_t state) {
  return name_of(state, FabricState::completed);
}

const char* onehop_pci_path_name(onehop_pci_path_t path) {
  return name_of(path, PciPath::unknown);
}

const char* onehop_connectivity_name(onehop_connectivity_t connectivity) {
  return name_of(connectivity, Connectivity::fully_connected);
}

}  // extern "C"
