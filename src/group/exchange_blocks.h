// SPDX-License-Identifier: Apache-2.0
// How the ranks of a group map each other's memory: each allocates a block, and maps those of all others.
#pragma once

#include <cstddef>
#include <functional>
#include <new>

#include "onehop/buffer.h"

#include "group/mesh.h"
#include "memory/backend.h"

namespace onehop {

/// Collective: exchanges the status of every rank and throws the first failure, the same on all ranks.
void agree(IpcChannel::Mesh& mesh, const Status& own, const Deadline& deadline, const char* phase);

/// Runs a step that may fail on this rank alone. Returns its status, to be shared with the other ranks.
template <class Step>
[[nodiscard]] Status attempt(const IpcChannel::Mesh& mesh, const char* phase, Step&& step) {
  const Rank own = mesh.named(mesh.rank());
  try {
    step();
    return {};
  } catch (const Error& error) {
    Status status = Status::of(error, own);
    status.message = fmt::format("{}: rank {}: {}", phase, own.value, error.message());
    return status;
  } catch (const std::bad_alloc&) {
    return {.code = ErrorCode::out_of_resources,
            .origin = own,
            .message = fmt::format("{}: rank {}: out of memory", phase, own.value)};
  }
}

struct SharedBlocks {
  MappedBlocks blocks;       ///< as mapped on this rank, in rank order
  bool one_process = false;  ///< all ranks are threads of one process, and share one mapping
};

/// Collective: allocates memory on every rank and maps it on every rank. Each block has `bytes` as the user
/// requested, preceded by `extra` bytes of our own.
/// `options`, if any, must be the same on all ranks. `initialize`, if any, receives this rank's memory
/// before another rank can map it.
[[nodiscard]] SharedBlocks exchange_blocks(IpcChannel::Mesh& mesh, const MemoryBackend& backend,
                                           std::size_t bytes, std::size_t extra, const Deadline& deadline,
                                           const char* phase, const BufferOptions* options = nullptr,
                                           const std::function<void(std::byte*)>& initialize = {});

}  // namespace onehop
