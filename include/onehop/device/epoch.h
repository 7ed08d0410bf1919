// SPDX-License-Identifier: Apache-2.0
// The counter behind epochs, as plain data. Free of CUDA headers; the functions are in epoch.cuh.
#pragma once

#include <cstdint>

namespace onehop {

/// Counts the kernels that have used a piece of memory. It lies in device memory, so that graph replays
/// continue the count. Every rank has its own; peers do not access it. Zeroed memory is a new counter.
struct EpochCounter {
  /// What the blocks of a kernel add together. A grid has no more blocks, since all blocks of a kernel that waits for
  /// other ranks must be resident at once.
  static constexpr std::uint32_t kPerKernel = 1 << 16;

  /// kPerKernel for each kernel that has ended, and what blocks of the running kernel have added so far.
  std::uint64_t shares;
};

}  // namespace onehop
