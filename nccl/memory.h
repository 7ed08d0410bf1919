// SPDX-License-Identifier: Apache-2.0
// Where there is no NCCL: memory that programs allocate through it, and what they register for themselves. The kernels carry
// any memory of the device as it is.
#pragma once

#include <cstddef>

#include "abi.h"

namespace onehop::nccl {

/// Memory of the current device; with ONEHOP_NCCL_DEVICE=cpu, of the host.
Result mem_alloc(void** data, std::size_t bytes) noexcept;
Result mem_free(void* data) noexcept;

/// A rank may do so alone, so it changes nothing. The handle is NULL, as NCCL's is where it registers nothing.
Result comm_register(Comm comm, void* data, std::size_t bytes, void** handle) noexcept;
Result comm_deregister(Comm comm, void* handle) noexcept;

}  // namespace onehop::nccl
