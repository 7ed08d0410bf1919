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

/// The GPU side, asked of the driver. The devices are in the driver's order.
[[nodiscard]] DeviceProbe probe_devices();

/// What two facts say about why no device was listed: could libcuda.so.1 be loaded (empty), or why not; and
/// does the driver's control device exist.
[[nodiscard]] std::string driver_note(const std::string& library_error, bool device_node);

}  // namespace onehop
