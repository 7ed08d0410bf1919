// SPDX-License-Identifier: Apache-2.0
// The files through which programs reach NVIDIA's driver.
#pragma once

#include <string>

#include "onehop/diagnose.h"

namespace onehop {

inline constexpr const char* kGpuSection = "GPUs";

struct DeviceFiles {
  int gpus = 0;  ///< nvidia0, nvidia1, ...
  Finding finding;
};

/// Looks into `directory` (of a running system: /dev) and opens what it finds there.
[[nodiscard]] DeviceFiles check_device_files(const std::string& directory);

}  // namespace onehop
