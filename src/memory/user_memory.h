// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU that the user of the library has allocated, mapped by peers.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "onehop/device_memory.h"
#include "onehop/types.h"

#include "memory/backend.h"
#include "os/unique_fd.h"

namespace onehop {

/// How peers find it: plain data that travels.
struct UserMemory {
  IpcHandle place;  ///< the driver's part of it is empty where a descriptor carries the memory
  bool has_descriptor = false;
};

struct SharedUserMemory {
  UserMemory memory;
  os::UniqueFd descriptor;  ///< if it has one; not needed once peers have it
};

/// Memory of cudaMalloc goes by CUDA IPC, memory of cuMemCreate by a descriptor. It must lie in one
/// allocation and on `device`. Error{invalid_argument} says what it is otherwise, and what to use instead.
[[nodiscard]] SharedUserMemory share_user_memory(const void* data, std::size_t bytes, DeviceId device);

/// A peer's, or another rank's of this process, reachable from `for_device`; the block is what was shared,
/// and no more. The peer keeps it allocated.
[[nodiscard]] std::shared_ptr<Block> map_user_memory(const UserMemory& memory, os::UniqueFd descriptor,
                                                     DeviceId for_device);

/// Whether memory that this process has shared is still the allocation that it was. One question to the
/// driver.
[[nodiscard]] bool still_there(const UserMemory& memory);

}  // namespace onehop
