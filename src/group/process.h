// Which process this is, to its peers.
#pragma once

#include "os/random.h"

namespace onehop {

/// A random identity of this process: new in a forked child, unlike anything derived from a PID unique across
/// namespaces. Ranks with equal ones share an address space. Thread-safe.
[[nodiscard]] os::Id process_id();

}  // namespace onehop
