// SPDX-License-Identifier: Apache-2.0
// The two halves of a probe, apart so that each can be replaced and tested by itself.
#pragma once

#include <string>
#include <vector>

#include "onehop/topology.h"

struct hwloc_topology;

namespace onehop {

struct HostProbe {
  HostInfo host;
  std::vector<std::string> notes;
};

/// The CPU side, restricted to the processors this process may run on. What hwloc cannot tell becomes a note.
[[nodiscard]] HostProbe probe_host();

/// What a loaded hwloc topology says; `hostname` is left empty.
[[nodiscard]] HostInfo describe_host(hwloc_topology* machine);

struct DeviceProbe {
  std::vector<DeviceInfo> devices;
  std::vector<PairInfo> pairs;  ///< devices x devices, row major
  std::vector<std::string> notes;
};

/// The GPU side, asked of the driver, NVML and hwloc. The devices are in the driver's order. Never throws for
/// what one of them does not answer: that becomes a note. Where there are no devices, a note says why.
[[nodiscard]] DeviceProbe probe_devices();

/// The same on a machine whose PCI devices are those of a loaded hwloc topology (nullptr: not known).
[[nodiscard]] DeviceProbe probe_devices(hwloc_topology* pci_machine);

/// What identifies one GPU of this process: UUID, name, PCI bus id and compute capability; the rest is not
/// asked for. Unlike a probe it throws: Error{invalid_argument} for a device that is not there,
/// Error{unsupported} without a driver.
[[nodiscard]] DeviceInfo probe_identity(DeviceId device);

/// Active NVLinks from each of these PCI devices to each other one, row major, also of GPUs that this process
/// does not see. What NVML does not answer counts as no link.
[[nodiscard]] std::vector<int> probe_nvlinks(const std::vector<std::string>& bus_ids);

/// Puts the halves together.
[[nodiscard]] Topology assemble(HostProbe host, DeviceProbe gpu);

}  // namespace onehop
