// SPDX-License-Identifier: Apache-2.0
// Copy engines write into symmetric outputs: parameters of the kernels between the copies, and their scratch
// memory. Plain data, for both compilers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/sync/barrier.h"
#include "call/scale.h"

namespace onehop::cuda {

struct DeviceAlgorithm;
extern const DeviceAlgorithm kCopyEngine;
extern const DeviceAlgorithm kCopyEngineTwoShot;

/// What a barrier needs of a rank's scratch memory.
struct BarrierWords {
  EpochCounter counter;
  std::uint64_t flags[kMaxDevices];  ///< by source
};

struct CopyEngineHead {
  BarrierWords window;
  BarrierWords reduce;
  std::uint64_t windows[2][kMaxDevices];  ///< by parity and source
};

/// Parameters of window_barrier.cuh.
struct WindowBarrierParams {
  Barrier barrier;
  std::uint64_t window = 0;                       ///< must be the same on all ranks
  const std::uint64_t* own_windows = nullptr;     ///< by parity and source
  std::uint64_t* peer_windows[kMaxDevices] = {};  ///< by destination: this rank's word of parity 0 there
  /// After the last copy: what to fill with NaN if the call has failed (sync/call.cuh).
  struct Received {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  } received[2];
};

/// Parameters of reduce_piece.cuh.
struct ReducePieceParams {
  Barrier barrier;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;             ///< of the message
  std::size_t piece = 0;             ///< bytes of each rank's piece, a multiple of 16
  std::size_t begin = 0;             ///< offset in the piece where this launch begins
  std::size_t length = 0;            ///< bytes of the piece that it reduces, a multiple of 16
  bool aligned = false;              ///< in and out are aligned to 16 bytes
  const std::byte* inbox = nullptr;  ///< received data, by source
  std::size_t rank_stride = 0;
  Scale scale;
};

}  // namespace onehop::cuda
