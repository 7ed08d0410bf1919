// SPDX-License-Identifier: Apache-2.0
// Tries whether a device's memory can be shared by handles. Attributes do not suffice: a driver may offer
// fabric handles but not permit them.
#pragma once

#include <optional>
#include <string>

#include "onehop/types.h"

#include "driver/cuda_driver.h"

namespace onehop {

struct ShareFailure {
  const char* call = "";
  CUresult result = CUDA_SUCCESS;
  std::string passing = {};  ///< the operating system's error, if the driver did not fail

  /// Returns, for example, "cuMemCreate: CUDA_ERROR_NOT_PERMITTED (800): operation not permitted".
  [[nodiscard]] std::string text() const;
};

enum class ShareTrial {
  exchange,  ///< create, export, pass a descriptor through a socket, import, release
  map,       ///< exchange, and also map the imported memory for the device and unmap it
};

/// Shares an allocation of the minimum size on `device` with this process itself, by handles of `type` (POSIX
/// descriptors or fabric handles). Always releases everything. Returns the first failure, or nullopt. Throws
/// Error{out_of_resources} if no descriptors are available.
[[nodiscard]] std::optional<ShareFailure> try_sharing(const CudaDriver& driver, DeviceId device,
                                                      CUmemAllocationHandleType type, ShareTrial trial);

}  // namespace onehop
