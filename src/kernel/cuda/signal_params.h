// SPDX-License-Identifier: Apache-2.0
// What the host tells the kernels that work on signal pads.
#pragma once

#include "onehop/device/view.h"

namespace onehop::cuda {

struct SignalParams {
  DeviceView view;
  int peer = 0;
  int channel = 0;
};

}  // namespace onehop::cuda
