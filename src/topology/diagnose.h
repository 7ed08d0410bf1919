// SPDX-License-Identifier: Apache-2.0
// The implementation of diagnose_gpus, separated so that tests can provide the device files.
#pragma once

#include "topology/device_files.h"

namespace onehop {

/// diagnose_gpus with device files that have already been examined.
[[nodiscard]] GpuDiagnosis diagnose_gpus(const DeviceFiles& files);

}  // namespace onehop
