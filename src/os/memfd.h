// SPDX-License-Identifier: Apache-2.0
// Anonymous shared memory of a fixed, sealed size.
#pragma once

#include <cstddef>

#include "os/unique_fd.h"

namespace onehop::os {

/// Creates a zeroed memfd of exactly `bytes` (a multiple of the page size), close-on-exec, sealed against
/// shrinking, growing and further sealing. Its pages are allocated at once, so that a lack of memory is an
/// Error here instead of a SIGBUS later.
[[nodiscard]] UniqueFd create_sealed_memfd(const char* name, std::size_t bytes);

/// Throws Error{protocol} unless `fd` is memory of exactly `bytes` with those seals. Check a peer's
/// descriptor with it before use: memory that can shrink kills its readers with SIGBUS.
void require_sealed_memfd(int fd, std::size_t bytes);

}  // namespace onehop::os
