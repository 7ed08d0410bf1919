// Where symmetric memory comes from. The cold seam between the backends: allocate, export as a descriptor,
// import.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

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

struct Allocation {
  std::shared_ptr<Block> block;
  os::UniqueFd handle;  ///< travels to peers in other processes; not needed once they have it
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
  [[nodiscard]] virtual std::shared_ptr<Block> import(os::UniqueFd handle, std::size_t bytes) const = 0;
};

/// Sealed memfds.
[[nodiscard]] std::unique_ptr<MemoryBackend> make_host_backend();

}  // namespace onehop
