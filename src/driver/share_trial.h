// SPDX-License-Identifier: Apache-2.0
// Whether memory of a device can really be shared by handles: tried, because attributes do not tell (a driver
// may offer fabric handles and then not permit them).
#pragma once

#include <optional>
#include <string>

#include "onehop/types.h"

#include "driver/cuda_driver.h"

namespace onehop {

struct ShareFailure {
  const char* call = "";
  CUresult result = CUDA_SUCCESS;
  std::string passing = {};  ///< what the kernel says when it is not the driver that refuses

  /// "cuMemCreate: CUDA_ERROR_NOT_PERMITTED (800): operation not permitted".
  [[nodiscard]] std::string text() const;
};

enum class ShareTrial {
  exchange,  ///< create, export, pass a descriptor through a socket, import, release
  map,       ///< the same, and the imported memory is mapped for the device and unmapped
};

/// Shares the smallest piece of `device`'s memory that can be shared with this process itself, by handles of
/// `type` (POSIX descriptors or fabric handles), and gives everything back, whatever happens. What failed
/// first, or nothing. Error{out_of_resources} where there are no descriptors left to try with.
[[nodiscard]] std::optional<ShareFailure> try_sharing(const CudaDriver& driver, DeviceId device,
                                                      CUmemAllocationHandleType type, ShareTrial trial);

}  // namespace onehop
