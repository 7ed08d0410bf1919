// SPDX-License-Identifier: Apache-2.0
// Pipelined two-shot all-reduce: kernel parameters and scratch memory. Plain data, for both compilers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onehop/device/view.h"

#include "backend/cuda/scratch.h"
#include "call/scale.h"

namespace onehop::cuda {

/// Maximum number of blocks of a call, and slots of each kind that a block uses in turn. The number of blocks
/// is that of an H200's multiprocessors. For the same memory, a ring of 4 is as fast as one of 8 for most sizes
/// (bench/results/gpu-kernels.md).
inline constexpr unsigned kMaxPipelineBlocks = 132;
inline constexpr unsigned kPipelineDepth = 4;

/// Warps of a block by role; `signallers` is for each of the two phases.
struct WarpRoles {
  int senders;
  int reducers;
  int gatherers;
  int signallers;
  [[nodiscard]] constexpr int threads() const {
    return 32 * (senders + reducers + gatherers + 2 * signallers);
  }
};
[[nodiscard]] constexpr WarpRoles warp_roles(int kernel_ranks) {
  if (kernel_ranks == 2) return {.senders = 2, .reducers = 4, .gatherers = 2, .signallers = 4};
  if (kernel_ranks == 4) return {.senders = 3, .reducers = 5, .gatherers = 4, .signallers = 2};
  return {.senders = 2, .reducers = 2, .gatherers = 2, .signallers = 1};
}
static_assert(warp_roles(2).threads() == max_threads(2) && warp_roles(4).threads() == max_threads(4) &&
              warp_roles(kMaxDevices).threads() == max_threads(kMaxDevices));

/// Start of the scratch memory.
struct PipelineHead {
  std::uint64_t chunks[kMaxPipelineBlocks];  ///< the number of chunks that each block began in earlier calls
  /// By phase, block, slot and source. A peer raises a flag to the number of a chunk.
  std::uint64_t flags[2][kMaxPipelineBlocks][kPipelineDepth][kMaxDevices];
};

struct PipelineParams {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;
  int rank = 0;
  int size = 0;
  bool aligned = false;   ///< in and out are aligned to 16 bytes
  bool poison = false;    ///< fill the output with NaN if the call fails (sync/call.cuh)
  std::size_t piece = 0;  ///< bytes of each rank's piece, a multiple of 16
  std::size_t chunk = 0;  ///< bytes of a piece per chunk, a multiple of 16

  PipelineHead* heads[kMaxDevices] = {};  ///< by rank
  /// The own slots, and for each step s this rank's slot on the s-th rank to the right; those of block 0 and
  /// phase 0. The strides lead to the others.
  std::byte* inbox = nullptr;
  std::byte* outbox[kMaxDevices] = {};
  std::size_t slot_stride = 0;
  std::size_t phase_stride = 0;
  std::size_t rank_stride = 0;
  DeviceGuard guard;
  Scale scale;
};

}  // namespace onehop::cuda
