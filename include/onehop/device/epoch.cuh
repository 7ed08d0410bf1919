// SPDX-License-Identifier: Apache-2.0
// Epochs: the kernels that use the same memory are numbered. All ranks launch the same kernels in the same
// order and so have the same count. Every thread of a kernel reads the count, and every block adds its share of
// one kernel to it. A count rounded down to whole kernels is that of the kernels before, until the last block has
// added its share. So no further kernel is needed to count, and no block waits to learn whether it is the last.
//
// Kernels that share a counter execute one after the other on each rank.
#pragma once

#include "onehop/device/epoch.h"

namespace onehop::device {

/// What blocks have added to the counter.
/// relaxed.gpu: pairs with the additions in add_share() of earlier kernels, which have ended, and of this kernel.
__device__ __forceinline__ std::uint64_t read_shares(const EpochCounter& counter) {
  std::uint64_t shares;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(shares) : "l"(&counter.shares) : "memory");
  return shares;
}
[[nodiscard]] __device__ __forceinline__ std::uint64_t epoch_of(std::uint64_t shares) {
  return shares / EpochCounter::kPerKernel + 1;
}
/// The epoch of this kernel, at least 1. Every thread reads it, as early as possible.
__device__ __forceinline__ std::uint64_t read_epoch(const EpochCounter& counter) {
  return epoch_of(read_shares(counter));
}

/// Called by one thread of every block of a grid (one-dimensional) or of one of its rows, when all threads of the block
/// have read the epoch. If several rows use one counter: `block` is the number of this one among all their `blocks`.
__device__ __forceinline__ void add_share(EpochCounter& counter, std::uint64_t epoch,
                                          unsigned block = blockIdx.x, unsigned blocks = gridDim.x) {
  if (blocks == 1) {
    // Plain: pairs with the load in read_epoch() of the next kernel; this kernel ends between them. Small calls take
    // 0.04 us less than with an addition (H200).
    counter.shares = epoch * EpochCounter::kPerKernel;
    return;
  }
  const std::uint32_t share = block == 0 ? EpochCounter::kPerKernel - (blocks - 1) : 1;
  // relaxed.gpu: pairs with the load in read_epoch(); orders nothing.
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(&counter.shares), "l"(std::uint64_t{share})
               : "memory");
}

/// Called once by all threads of every block (one-dimensional), with the epoch that they have read, after a
/// barrier of the block. A barrier does not wait for loads whose values nothing has used yet. So each thread
/// must have used the epoch before the barrier, or pass it to the barrier (__syncthreads_or).
__device__ __forceinline__ void advance_epoch(EpochCounter& counter, std::uint64_t epoch) {
  if (threadIdx.x == blockDim.x - 1) add_share(counter, epoch);
}

}  // namespace onehop::device
