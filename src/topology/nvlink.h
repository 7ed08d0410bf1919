// SPDX-License-Identifier: Apache-2.0
// NVLinks between devices, as NVML sees them.
#pragma once

#include <string>
#include <vector>

#include "driver/nvml.h"

namespace onehop {

struct NvlinkMatrix {
  std::vector<int> links;  ///< devices x devices, row major; 0 on the diagonal; -1: not known
  std::vector<std::string> notes;
};

/// Active links from each device to each other. `bus_ids` are the devices' PCI bus ids as cuda_pci_bus_id
/// writes them. A link to another device counts for it; links into an NVSwitch count towards every other
/// device that has some (the smaller of the two ends' counts). Where none is
/// found, but NVML did not answer about all of them, the count is not known.
[[nodiscard]] NvlinkMatrix count_nvlinks(const Nvml& nvml, const std::vector<std::string>& bus_ids);

}  // namespace onehop
