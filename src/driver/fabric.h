// SPDX-License-Identifier: Apache-2.0
// The NVLink fabric: what a device's registration looks like.
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
  std::uint32_t clique = 0;  ///< devices of one cluster and clique reach each other
  std::string trouble;       ///< why it is not completed with success, one line; empty when it is
};

/// Asks NVML about the device with this PCI bus id. Never throws for what NVML answers.
[[nodiscard]] FabricRegistration fabric_registration(const Nvml& nvml, const std::string& pci_bus_id);

}  // namespace onehop
