// SPDX-License-Identifier: Apache-2.0
// Opening files.
#pragma once

#include <string>

#include "os/unique_fd.h"

namespace onehop::os {

/// openat(2) with O_CLOEXEC, repeated when a signal interrupts it. On failure the result is empty and errno
/// says why. `directory` may be AT_FDCWD.
[[nodiscard]] UniqueFd open_at(int directory, const std::string& path, int flags, unsigned mode = 0);

}  // namespace onehop::os
