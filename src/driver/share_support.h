// SPDX-License-Identifier: Apache-2.0
// The handle types by which a device's memory can be shared with other processes. Determined by a trial where
// attributes are not sufficient. Inside one machine any of them suffices, so a negative result is only logged
// at debug level.
#pragma once

#include <string>

#include "onehop/types.h"

namespace onehop {

struct ShareSupport {
  bool usable = false;
  std::string reason;  ///< why it is not usable, or what makes it usable; one line
};

// Each function caches its result per device and process until forget_share_support, including negative
// results other than those for want of memory. Thread-safe. Throws only Error{invalid_argument} for a device that does not exist,
// Error{unsupported} without a driver, and, in descriptor_support, Error{out_of_resources} if there are not
// enough resources for the trial.

/// Fabric handles: usable if the driver offers them, NVML reports the device's registration as completed, and
/// a full cycle of create, export, import and release succeeds. If usable, the reason is the device's fabric
/// location (cluster and clique): devices with the same one can import each other's handles.
[[nodiscard]] ShareSupport fabric_support(DeviceId device);
/// Descriptors: usable if the device has virtual memory management, and the same cycle succeeds with a
/// descriptor that is passed through a socket.
[[nodiscard]] ShareSupport descriptor_support(DeviceId device);
/// CUDA IPC: usable according to the driver's attribute. Not tried, because freeing memory would wait for the
/// whole device.
[[nodiscard]] ShareSupport ipc_support(DeviceId device);

/// Clears the cached results.
void forget_share_support();

}  // namespace onehop
