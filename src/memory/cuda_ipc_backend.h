// SPDX-License-Identifier: Apache-2.0
// Memory of cuMemAlloc, carried by CUDA IPC: for devices whose memory no descriptor can carry.
#pragma once

#include <memory>

#include "memory/backend.h"

namespace onehop {

/// See make_cuda_backend.
[[nodiscard]] std::unique_ptr<MemoryBackend> make_cuda_ipc_backend(DeviceId device, Duration patience);

}  // namespace onehop
