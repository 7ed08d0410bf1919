// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels that use signal pads.
#pragma once

#include "onehop/device/view.h"

namespace onehop::cuda {

struct SignalParams {
  DeviceView view;
  int peer = 0;
  int channel = 0;
};

}  // namespace onehop::cuda
