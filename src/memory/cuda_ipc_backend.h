// SPDX-License-Identifier: Apache-2.0
// cuMemAlloc memory shared by CUDA IPC, for devices whose memory cannot be shared by descriptors.
#pragma once

#include <memory>

#include "memory/backend.h"

namespace onehop {

/// See make_cuda_backend.
[[nodiscard]] std::unique_ptr<MemoryBackend> make_cuda_ipc_backend(DeviceId device, Duration patience);

}  // namespace onehop
