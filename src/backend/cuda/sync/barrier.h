// SPDX-License-Identifier: Apache-2.0
// A barrier of all ranks' kernels: its parameters. Plain data, for both compilers.
#pragma once

#include <cstdint>

#include "onehop/device/view.h"

#include "backend/cuda/scratch.h"

namespace onehop::cuda {

/// Where the kernels of the ranks synchronize, which completes earlier copies on all ranks (barrier.cuh).
struct Barrier {
  int rank = 0;
  int size = 0;
  DeviceFault::Phase phase = DeviceFault::user;
  EpochCounter* counter = nullptr;
  const std::uint64_t* own_flags = nullptr;     ///< by source
  std::uint64_t* peer_flags[kMaxDevices] = {};  ///< by destination: this rank's flag there
  DeviceGuard guard;
};

}  // namespace onehop::cuda
