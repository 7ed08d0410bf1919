// SPDX-License-Identifier: Apache-2.0
// The device files of NVIDIA's kernel driver.
#pragma once

#include <string>

#include "onehop/diagnose.h"

namespace onehop {

inline constexpr const char* kGpuSection = "GPUs";

struct DeviceFiles {
  int gpus = 0;  ///< nvidia0, nvidia1, ...
  Finding finding;
};

/// Examines the device files in `directory` (/dev on a running system) by opening them.
[[nodiscard]] DeviceFiles check_device_files(const std::string& directory);

}  // namespace onehop
