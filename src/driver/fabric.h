// The NVLink fabric: what a device's registration looks like, and whether memory can be shared by fabric
// handles. onehop needs neither inside one machine (file descriptors do), so every "no" is quiet.
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

struct FabricSupport {
  bool usable = false;
  std::string reason;  ///< why not, or what makes it usable; one line
};

/// Whether `device`'s memory can be shared by fabric handles: the driver offers it, NVML says that the
/// device's registration is completed, and a full cycle of create, export, import and release succeeds. Found
/// out once per device and process, the negative answer too; valid for the life of the process.
/// Error{invalid_argument} for a device that does not exist, Error{unsupported} without a driver; nothing
/// else is an error. Thread-safe.
[[nodiscard]] const FabricSupport& fabric_support(DeviceId device);

}  // namespace onehop
