// SPDX-License-Identifier: Apache-2.0
// GPU memory that was allocated by the user of the library and is mapped by peers.
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

/// Plain data with which peers find the memory.
struct UserMemory {
  IpcHandle place;  ///< the driver's part is empty if a descriptor shares the memory
  bool has_descriptor = false;
};

struct SharedUserMemory {
  UserMemory memory;
  os::UniqueFd descriptor;  ///< if it has one; not needed after the peers have received it
};

/// Shares cudaMalloc memory by CUDA IPC and cuMemCreate memory by a descriptor. The memory must lie in one
/// allocation on `device`. Otherwise throws Error{invalid_argument}, which names the kind of memory and an
/// alternative.
[[nodiscard]] SharedUserMemory share_user_memory(const void* data, std::size_t bytes, DeviceId device);

/// Maps memory of a peer, or of another rank of this process, for access from `for_device`. The block covers
/// exactly the shared bytes. The peer must keep the memory allocated.
[[nodiscard]] std::shared_ptr<Block> map_user_memory(const UserMemory& memory, os::UniqueFd descriptor,
                                                     DeviceId for_device);

/// Whether memory that this process has shared is still the same allocation. Makes one driver query.
[[nodiscard]] bool still_there(const UserMemory& memory);

}  // namespace onehop
