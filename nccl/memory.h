// SPDX-License-Identifier: Apache-2.0
// Memory that programs allocate and register. The kernels carry any memory of the device as it is, and copy engines write into
// windows (windows.h).
#pragma once

#include <cstddef>

#include "abi.h"

namespace onehop::nccl {

// Where there is no NCCL.

/// Memory of the current device; with ONEHOP_NCCL_DEVICE=cpu, of the host.
Result mem_alloc(void** data, std::size_t bytes) noexcept;
Result mem_free(void* data) noexcept;

/// A rank may do so alone, so it changes nothing. The handle is NULL, as NCCL's is where it registers nothing.
Result comm_register(Comm comm, void* data, std::size_t bytes, void** handle) noexcept;
Result comm_deregister(Comm comm, void* handle) noexcept;

/// Without NCCL_WIN_COLL_SYMMETRIC, and where the memory of a rank cannot be shared, the window is NULL
/// on all ranks, as NCCL's is where it registers nothing.
Result comm_window_register(Comm comm, void* data, std::size_t bytes, void** window, int flags) noexcept;
Result comm_window_deregister(Comm comm, void* window) noexcept;

namespace accelerate {
Result comm_window_register(Comm comm, void* data, std::size_t bytes, void** window, int flags) noexcept;
Result comm_window_deregister(Comm comm, void* window) noexcept;
}  // namespace accelerate

}  // namespace onehop::nccl
