// SPDX-License-Identifier: Apache-2.0
// Push algorithms: every rank writes its data into the peers' scratch memory, in words that show by themselves
// whether they have arrived (wire/). Kernel parameters and scratch memory; plain data, for both compilers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onehop/device/view.h"

#include "backend/cuda/scratch.h"
#include "call/scale.h"

namespace onehop::cuda {

/// Data bytes of one rank's slot for LL packets. A slot takes twice as much memory.
inline constexpr std::size_t kLLSlotBytes = 256 << 10;

/// Parameters of one launch. The host computes everything that it can in advance: in a kernel, divisions and
/// long products take longer than the data takes to cross the link.
///
/// In an order by which a one-shot call between 4 ranks reads three lines (64 bytes) of the constant cache. When the
/// scale was in a line of its own, read only after the data had arrived, small calls took some 30 ns longer.
struct PushParams {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;
  int rank = 0;
  int size = 0;
  bool aligned = false;       ///< in and out are aligned to 16 bytes
  bool early = false;         ///< the next kernel may start as soon as this one runs (sync/call.cuh)
  bool by_peer = false;       ///< two-shot: send to one peer after the other
  bool poison = false;        ///< fill the output with NaN if the call fails (sync/call.cuh)
  std::uint32_t packets = 0;  ///< packets, each moved by one thread at a time; two-shot: of one piece
  DeviceFault::Phase phase = DeviceFault::user;
  Scale scale;
  EpochCounter* counter = nullptr;
  DeviceGuard guard;
  /// The own slots, and for each step s this rank's slot on the s-th rank to the right. These are the slots
  /// of parity 0 and phase 0; the strides lead to the others.
  std::byte* inbox = nullptr;
  std::size_t parity_stride = 0;
  std::size_t rank_stride = 0;
  std::byte* outbox[kMaxDevices] = {};
  std::size_t phase_stride = 0;
  std::size_t piece = 0;  ///< two-shot: bytes of each rank's piece, a multiple of 16
  std::size_t block = 0;  ///< reduce-scatter: bytes of a block that this launch reduces
};

/// Maximum number of all-reduces in one launch. At this number each one's share of the launch cost is small,
/// and every launch carries parameters for the maximum.
inline constexpr std::size_t kMaxFused = 32;

/// Several all-reduces in one launch, over LL packets. The packets of the messages are numbered consecutively.
/// `in`, `out`, `bytes` and `aligned` are unused here.
struct PushListParams : PushParams {
  struct Message {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::size_t bytes = 0;
  };
  std::uint32_t first[kMaxFused] = {};  ///< first packet of each message; all ones behind the last message
  Message messages[kMaxFused] = {};
};

}  // namespace onehop::cuda
