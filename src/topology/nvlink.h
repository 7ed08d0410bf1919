// SPDX-License-Identifier: Apache-2.0
// NVLinks between devices, as reported by NVML.
#pragma once

#include <string>
#include <vector>

#include "driver/nvml.h"

namespace onehop {

struct NvlinkMatrix {
  std::vector<int> links;  ///< devices x devices, row major; 0 on the diagonal; -1: unknown
  std::vector<std::string> notes;
};

/// Counts the active links from each device to every other one. `bus_ids` are the devices' PCI bus ids in the
/// format of cuda_pci_bus_id. A direct link counts for its peer. Links into an NVSwitch count for every other
/// device with such links; the smaller number of the two ends applies. The count is unknown if no link is
/// found but NVML did not answer for all of them.
[[nodiscard]] NvlinkMatrix count_nvlinks(const Nvml& nvml, const std::vector<std::string>& bus_ids);

}  // namespace onehop
