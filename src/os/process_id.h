// SPDX-License-Identifier: Apache-2.0
// Which process this is, for others to tell.
#pragma once

#include "os/random.h"

namespace onehop::os {

/// A random identity of this process: new in a forked child, unlike anything derived from a PID unique across
/// namespaces. Whoever has the same one shares an address space. Thread-safe.
[[nodiscard]] Id process_id();

}  // namespace onehop::os
