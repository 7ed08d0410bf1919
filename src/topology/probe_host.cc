// SPDX-License-Identifier: Apache-2.0
#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include "base/check.h"
#include "topology/probe.h"

namespace onehop {
namespace {

using Machine = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

/// Loads this machine's hwloc topology. Returns nullptr and sets errno on failure.
Machine load_machine() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {nullptr, &hwloc_topology_destroy};
  Machine machine(raw, &hwloc_topology_destroy);
  // Restrict to usable processors: otherwise a job on 4 of 128 cores would appear to have all of them.
  constexpr unsigned long kFlags =
      HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM | HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING;
  if (hwloc_topology_set_flags(raw, kFlags) != 0 || hwloc_topology_load(raw) != 0) machine.reset();
  return machine;
}

int count_of(hwloc_topology_t machine, hwloc_obj_type_t type) {
  return std::max(0, hwloc_get_nbobjs_by_type(machine, type));
}

std::vector<int> cpu_list(hwloc_const_cpuset_t set) {
  std::vector<int> cpus;
  for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu)) cpus.push_back(cpu);
  return cpus;
}

std::string cpu_model(hwloc_topology_t machine) {
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_MACHINE}) {
    auto* const object = hwloc_get_obj_by_type(machine, type, 0);
    const char* model = object != nullptr ? hwloc_obj_get_info_by_name(object, "CPUModel") : nullptr;
    if (model != nullptr) return model;
  }
  return {};
}

std::string hostname() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return {};
  return printable(name.data());
}

}  // namespace

HostInfo describe_host(hwloc_topology* machine) {
  HostInfo host;
  host.cpu_model = cpu_model(machine);
  host.cpus = count_of(machine, HWLOC_OBJ_PU);
  // hwloc omits cores if the system does not describe them. Each hardware thread then counts as a core.
  const int cores = count_of(machine, HWLOC_OBJ_CORE);
  host.cores = cores > 0 ? cores : host.cpus;
  for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(machine, HWLOC_OBJ_NUMANODE, node));) {
    std::vector<int> cpus = cpu_list(node->cpuset);
    // Skip memory without usable processors (another job's node, GPU or CXL memory): ranks cannot run there.
    if (cpus.empty()) continue;
    host.numa_nodes.push_back(
        {static_cast<int>(node->os_index), node->attr->numanode.local_memory, std::move(cpus)});
  }
  constexpr std::array kCaches{HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE,
                               HWLOC_OBJ_L5CACHE};
  for (const hwloc_obj_type_t type : kCaches) {
    for (hwloc_obj_t cache = nullptr; (cache = hwloc_get_next_obj_by_type(machine, type, cache));) {
      host.caches.push_back(
          {static_cast<int>(cache->attr->cache.depth), cache->attr->cache.size, cpu_list(cache->cpuset)});
    }
  }
  return host;
}

HostProbe probe_host() {
  HostProbe probe;
  errno = 0;
  if (const Machine machine = load_machine()) {
    probe.host = describe_host(machine.get());
    if (probe.host.caches.empty()) probe.notes.emplace_back("the system does not describe its CPU caches");
  } else {
    probe.notes.push_back(
        fmt::format("hwloc cannot describe this machine's processors: {}", errno_text(errno)));
    const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
    probe.host.cpus = probe.host.cores = std::max(1, static_cast<int>(online));
  }
  probe.host.hostname = hostname();
  return probe;
}

}  // namespace onehop
