// SPDX-License-Identifier: Apache-2.0
#include "binding.h"

#include <hwloc.h>
#include <hwloc/glibc-sched.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <type_traits>

#include "base/check.h"

namespace onehop::cli {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Machine = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, Destroy>;

Machine load_machine() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) fail_errno(errno, "--bind: hwloc cannot start");
  Machine machine(topology);
  // Restricted to the processors that this process may use.
  (void)hwloc_topology_set_flags(
      topology, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM | HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING);
  if (hwloc_topology_load(topology) != 0)
    fail_errno(errno, "--bind: hwloc cannot read the machine's topology");
  return machine;
}

}  // namespace

int usable_cores() {
  try {
    return std::max(hwloc_get_nbobjs_by_type(load_machine().get(), HWLOC_OBJ_CORE), 0);
  } catch (const Error&) {
    return 0;
  }
}

std::vector<cpu_set_t> plan_binding(Binding binding, int ranks) {
  std::vector<cpu_set_t> plan;
  if (binding == Binding::none) return plan;
  const Machine machine = load_machine();
  const hwloc_obj_type_t type = binding == Binding::cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_NUMANODE;
  const int count = hwloc_get_nbobjs_by_type(machine.get(), type);
  if (count <= 0) fail(ErrorCode::system, "--bind {}: hwloc finds none on this machine", to_string(binding));
  for (int rank = 0; rank < ranks; ++rank) {
    // Cores one after the other, NUMA nodes in equal shares of the ranks.
    const int index = binding == Binding::cores ? rank % count : rank * count / ranks;
    const hwloc_obj* const object = hwloc_get_obj_by_type(machine.get(), type, static_cast<unsigned>(index));
    cpu_set_t set;
    CPU_ZERO(&set);
    if (hwloc_cpuset_to_glibc_sched_affinity(machine.get(), object->cpuset, &set, sizeof set) != 0 ||
        CPU_COUNT(&set) == 0) {
      fail(ErrorCode::system, "--bind {}: no processor for rank {}", to_string(binding), rank);
    }
    plan.push_back(set);
  }
  return plan;
}

void bind_this_thread(const std::vector<cpu_set_t>& plan, int rank) {
  if (plan.empty()) return;
  const cpu_set_t& set = plan[static_cast<std::size_t>(rank)];
  if (::sched_setaffinity(0, sizeof set, &set) != 0)
    fail_errno(errno, fmt::format("--bind: cannot bind rank {}", rank));
}

}  // namespace onehop::cli
