// SPDX-License-Identifier: Apache-2.0
// The registration of a device with the NVLink fabric.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onehop/types.h"

#include "driver/nvml.h"

namespace onehop {

/// A device's registration with the NVLink fabric, as NVML reports it.
struct FabricRegistration {
  enum class State : std::uint8_t { unsupported, not_started, in_progress, completed };
  State state = State::unsupported;
  std::string cluster;       ///< uuid without prefix; empty when unsupported
  std::uint32_t clique = 0;  ///< devices of the same cluster and clique can access each other
  std::string trouble;       ///< why the registration is not completed successfully, one line; empty if it is
};

/// Queries NVML about the device with this PCI bus id. Never throws for a result of NVML.
[[nodiscard]] FabricRegistration fabric_registration(const Nvml& nvml, const std::string& pci_bus_id);

}  // namespace onehop
