// SPDX-License-Identifier: Apache-2.0
// In which ways a device's memory can reach other processes. Found out by trying where attributes do not
// tell. Inside one machine any of them will do, so every "no" is quiet.
#pragma once

#include <string>

#include "onehop/types.h"

namespace onehop {

struct ShareSupport {
  bool usable = false;
  std::string reason;  ///< why not, or what makes it usable; one line
};

// Found out once per device and process, the negative answer too, until forget_share_support. Thread-safe.
// Error{invalid_argument} for a device that does not exist, Error{unsupported} without a driver,
// Error{out_of_resources} of descriptor_support where nothing is left to find out with; nothing else is an
// error.

/// By fabric handles: the driver offers them, NVML says that the device's registration is completed, and a
/// full cycle of create, export, import and release succeeds. The reason of a yes is the device's place in
/// the fabric: devices with equal ones can import each other's handles.
[[nodiscard]] ShareSupport fabric_support(DeviceId device);
/// By descriptors: the device has virtual memory management, and that cycle succeeds with a descriptor that
/// is passed through a socket.
[[nodiscard]] ShareSupport descriptor_support(DeviceId device);
/// By CUDA IPC, as the driver's attribute says. Not tried: freeing memory would wait for the whole device.
[[nodiscard]] ShareSupport ipc_support(DeviceId device);

/// The next question is asked anew.
void forget_share_support();

}  // namespace onehop
