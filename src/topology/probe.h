// SPDX-License-Identifier: Apache-2.0
// The two halves of a probe, separated so that each can be replaced and tested alone.
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

/// Probes the CPUs, restricted to the processors that this process may run on. Information that hwloc cannot
/// provide becomes a note.
[[nodiscard]] HostProbe probe_host();

/// Describes the host of a loaded hwloc topology. Leaves `hostname` empty.
[[nodiscard]] HostInfo describe_host(hwloc_topology* machine);

struct DeviceProbe {
  std::vector<DeviceInfo> devices;
  std::vector<PairInfo> pairs;  ///< devices x devices, row major
  std::vector<std::string> notes;
};

/// Probes the GPUs with the driver, NVML and hwloc. The devices are in the driver's order. Never throws if
/// one of them does not answer: that becomes a note. If there are no devices, a note gives the reason.
[[nodiscard]] DeviceProbe probe_devices();

/// Probes the GPUs, with the PCI devices of a loaded hwloc topology (nullptr: unknown).
[[nodiscard]] DeviceProbe probe_devices(hwloc_topology* pci_machine);

/// Queries the identity of one GPU of this process: UUID, name, PCI bus id and compute capability, and
/// nothing else. Unlike a probe, it throws: Error{invalid_argument} for a device that does not exist,
/// Error{unsupported} without a driver.
[[nodiscard]] DeviceInfo probe_identity(DeviceId device);

/// Counts the active NVLinks from each of these PCI devices to every other one, row major, including GPUs
/// that are not visible to this process. Links that NVML does not report count as absent.
[[nodiscard]] std::vector<int> probe_nvlinks(const std::vector<std::string>& bus_ids);

/// Combines the two halves.
[[nodiscard]] Topology assemble(HostProbe host, DeviceProbe gpu);

}  // namespace onehop
