// SPDX-License-Identifier: Apache-2.0
// Anonymous shared memory that cannot change its size once it is shared.
#pragma once

#include <cstddef>

#include "os/unique_fd.h"

namespace onehop::os {

/// A zeroed memfd of exactly `bytes` (a multiple of the page size), close-on-exec, with its pages allocated,
/// so that a full machine shows here as an Error and not later as a SIGBUS, and sealed against shrinking,
/// growing and further sealing.
[[nodiscard]] UniqueFd create_sealed_memfd(const char* name, std::size_t bytes);

/// Error{protocol} unless `fd` is memory of exactly `bytes` that carries those seals: a peer's descriptor is
/// believed only after this, since memory that can shrink kills its readers with SIGBUS.
void require_sealed_memfd(int fd, std::size_t bytes);

}  // namespace onehop::os
