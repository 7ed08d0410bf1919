// SPDX-License-Identifier: Apache-2.0
// The interface between symmetric memory and the backends that provide it: allocate, export as a handle,
// import. Used at set-up only.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "onehop/types.h"

#include "os/unique_fd.h"

namespace onehop {

/// Memory of this process or of a peer, mapped into this process. Unmapped when its last owner is destroyed.
class Block {
 public:
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  virtual ~Block() = default;

  [[nodiscard]] virtual std::byte* data() const = 0;
  [[nodiscard]] virtual std::size_t bytes() const = 0;
};

/// The handle with which other processes map the memory: a descriptor, bytes, or both.
struct MemoryHandle {
  os::UniqueFd descriptor{};
  std::string bytes{};
};

/// One of each rank.
using MappedBlocks = std::vector<std::shared_ptr<Block>>;

struct Allocation {
  std::shared_ptr<Block> block;
  MemoryHandle handle;  ///< not needed after the peers have received it
};

class MemoryBackend {
 public:
  MemoryBackend() = default;
  MemoryBackend(const MemoryBackend&) = delete;
  MemoryBackend& operator=(const MemoryBackend&) = delete;
  virtual ~MemoryBackend() = default;

  /// `create` rounds sizes up to a multiple of this.
  [[nodiscard]] virtual std::size_t granularity() const = 0;
  /// Allocates zeroed memory of `bytes` rounded up.
  [[nodiscard]] virtual Allocation create(std::size_t bytes) const = 0;
  /// Maps a peer's memory. `bytes` is the size that the peer passed to `create`; the handle is checked
  /// against it.
  [[nodiscard]] virtual std::shared_ptr<Block> import(MemoryHandle handle, std::size_t bytes) const = 0;
  /// Makes memory that another rank of this process created accessible from this rank's device, at its
  /// existing address. Thread-safe.
  virtual void adopt(Block& block) const = 0;
};

/// Creates a backend of sealed memfds.
[[nodiscard]] std::unique_ptr<MemoryBackend> make_host_backend();

/// Creates a backend of GPU memory that is shared by one handle type, which must not be ShareBy::automatic.
/// `patience` is how long `create` may wait for the device to zero new memory before it throws
/// Error{timeout}.
///
/// With posix_fd and fabric, destroying a block does not wait for work that still uses it. With ipc,
/// allocating and freeing memory waits for all work on the device. If peers still map the memory when its
/// owner destroys the block, the owner's process frees it later, when it next allocates or frees such memory.
[[nodiscard]] std::unique_ptr<MemoryBackend> make_cuda_backend(DeviceId device, ShareBy share_by,
                                                               Duration patience = kDefaultTimeout);

}  // namespace onehop
