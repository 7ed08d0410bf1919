// SPDX-License-Identifier: Apache-2.0
// The scratch memory through which the kernels of a group communicate: every rank has a segment, which is cut
// into the regions that the algorithms declare (scratch_layout.h). It is zero when the group starts. Plain
// data, for both compilers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onehop/device/epoch.h"
#include "onehop/types.h"

namespace onehop::cuda {

/// What sizes and limits depend on. The same on all ranks.
struct GroupShape {
  int ranks = 1;
  std::size_t staging_bytes = 0;  ///< JoinOptions::scratch_bytes
  unsigned blocks = 1;            ///< blocks of a kernel that can be resident at once on every rank's device
};

/// Kernel variants for exactly `ranks` ranks exist where they pay off; kMaxDevices denotes the variant for
/// any number.
[[nodiscard]] constexpr int kernel_ranks(int ranks, bool sum) {
  return sum && (ranks == 2 || ranks == 4) ? ranks : kMaxDevices;
}
/// Maximum number of threads per block. Two such blocks fit a multiprocessor at the same time (sync/call.cuh),
/// with the 128 or 64 registers that this leaves each thread.
[[nodiscard]] constexpr int max_threads(int kernel_ranks) {
  return kernel_ranks == kMaxDevices ? 256 : 512;
}

/// Start of a segment.
struct SegmentHead {
  std::uint32_t failed;  ///< DeviceGuard::failed
};

/// Regions begin with what their kernels count, followed by data at this offset or a multiple of it.
inline constexpr std::size_t kScratchAlignment = 4096;
[[nodiscard]] constexpr std::size_t align_scratch(std::size_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

/// Where a region's slots lie, relative to the region. The slot of parity p, phase f and rank r starts at
///   begin + p * parity + f * phase + r * rank.
struct Slots {
  std::size_t begin = 0;
  std::size_t parity = 0;
  std::size_t phase = 0;
  std::size_t rank = 0;
};

}  // namespace onehop::cuda
