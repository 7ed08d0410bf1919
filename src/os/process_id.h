// SPDX-License-Identifier: Apache-2.0
// Identity of this process, for other processes.
#pragma once

#include "os/random.h"

namespace onehop::os {

/// A random identity of this process. A forked child gets a new one; unlike a PID, it is unique across
/// namespaces. Two ranks with the same identity share an address space. Thread-safe.
[[nodiscard]] Id process_id();

}  // namespace onehop::os
