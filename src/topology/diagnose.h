// SPDX-License-Identifier: Apache-2.0
// What diagnose_gpus is made of, apart so that tests can choose the device files.
#pragma once

#include "topology/device_files.h"

namespace onehop {

/// diagnose_gpus with device files that were looked at already.
[[nodiscard]] GpuDiagnosis diagnose_gpus(const DeviceFiles& files);

}  // namespace onehop
