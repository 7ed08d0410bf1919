// SPDX-License-Identifier: Apache-2.0
// Where there is no NCCL: memory that programs allocate through it, and what they register. The kernels carry any memory of
// the device as it is, so registering is never needed.
#pragma once

#include <cstddef>

#include "abi.h"

namespace onehop::nccl {

/// Memory of the current device; with ONEHOP_NCCL_DEVICE=cpu, of the host.
Result mem_alloc(void** data, std::size_t bytes) noexcept;
Result mem_free(void* data) noexcept;

/// The handle is NULL, as NCCL's is where it registers nothing.
Result comm_register(Comm comm, void* data, std::size_t bytes, void** handle) noexcept;
Result comm_deregister(Comm comm, void* handle) noexcept;
/// Likewise the window.
Result comm_window_register(Comm comm, void* data, std::size_t bytes, void** window, int flags) noexcept;
Result comm_window_deregister(Comm comm, void* window) noexcept;

}  // namespace onehop::nccl
