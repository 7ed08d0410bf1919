// SPDX-License-Identifier: Apache-2.0
#include "topology/probe.h"

#include <utility>

namespace onehop {

Topology Topology::probe() {
  return assemble(probe_host(), probe_devices());
}

Topology assemble(HostProbe host, DeviceProbe gpu) {
  Topology topology(std::move(host.host), std::move(gpu.devices));
  const int count = topology.device_count();
  auto pair = gpu.pairs.begin();
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) topology.set_pair(DeviceId{from}, DeviceId{to}, *pair++);
  }
  for (auto* notes : {&host.notes, &gpu.notes}) {
    for (std::string& note : *notes) topology.add_note(std::move(note));
  }
  return topology;
}

}  // namespace onehop
