// SPDX-License-Identifier: Apache-2.0
// Where symmetric memory comes from. The cold seam between the backends: allocate, export as a handle,
// import.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "onehop/types.h"

#include "os/unique_fd.h"

namespace onehop {

/// Memory mapped into this process, its own or a peer's. Unmapped when the last owner lets go.
class Block {
 public:
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  virtual ~Block() = default;

  [[nodiscard]] virtual std::byte* data() const = 0;
  [[nodiscard]] virtual std::size_t bytes() const = 0;
};

/// What carries memory to peers in other processes: a descriptor, bytes, or both.
struct MemoryHandle {
  os::UniqueFd descriptor{};
  std::string bytes{};
};

struct Allocation {
  std::shared_ptr<Block> block;
  MemoryHandle handle;  ///< not needed once the peers have it
};

class MemoryBackend {
 public:
  MemoryBackend() = default;
  MemoryBackend(const MemoryBackend&) = delete;
  MemoryBackend& operator=(const MemoryBackend&) = delete;
  virtual ~MemoryBackend() = default;

  /// Sizes given to `create` are rounded up to this.
  [[nodiscard]] virtual std::size_t granularity() const = 0;
  /// Zeroed memory of `bytes` rounded up.
  [[nodiscard]] virtual Allocation create(std::size_t bytes) const = 0;
  /// A peer's memory; `bytes` as given to the peer's `create`. Checked before it is believed.
  [[nodiscard]] virtual std::shared_ptr<Block> import(MemoryHandle handle, std::size_t bytes) const = 0;
  /// Memory that another rank of this process has made: makes it reachable from this rank's device, at the
  /// address it has already. Thread-safe.
  virtual void adopt(Block& block) const = 0;
};

/// Sealed memfds.
[[nodiscard]] std::unique_ptr<MemoryBackend> make_host_backend();

/// Memory of a GPU that travels in one way, which is not ShareBy::automatic.
/// `patience`: how long `create` may wait for the device to zero new memory before it is Error{timeout}.
///
/// posix_fd, fabric: blocks do not wait for work that still uses them when they go. ipc: making and freeing
/// memory waits for all work on the device; memory that peers still map when its owner lets go is freed by
/// the owner's process later, when it makes or frees such memory again.
[[nodiscard]] std::unique_ptr<MemoryBackend> make_cuda_backend(DeviceId device, ShareBy share_by,
                                                               Duration patience = kDefaultTimeout);

}  // namespace onehop
