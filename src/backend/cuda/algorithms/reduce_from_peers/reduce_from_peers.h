// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/algorithm.h"

namespace onehop::cuda {

extern const DeviceAlgorithm kReduceFromPeers;

}  // namespace onehop::cuda
