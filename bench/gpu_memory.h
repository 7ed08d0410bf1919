// SPDX-License-Identifier: Apache-2.0
// Memory of this process's GPUs, through the CUDA runtime as a user's program has it. Without a CUDA toolkit
// no_cuda.cc stands in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "onehop/types.h"

namespace onehop::bench {

/// Number of GPUs visible to this process; 0 without a driver.
[[nodiscard]] int gpu_count() noexcept;

/// Makes the device current on this thread, with its context, and returns `bytes` zeroed bytes on it.
[[nodiscard]] std::shared_ptr<void> allocate_on_gpu(DeviceId device, std::size_t bytes);

/// Bytes of the current device that all processes together use.
[[nodiscard]] std::uint64_t gpu_bytes_in_use();

}  // namespace onehop::bench
