// SPDX-License-Identifier: Apache-2.0
// Epochs: the kernels that use the same memory are numbered. All ranks launch the same kernels in the same
// order and so have the same count. Every thread of a kernel reads the count; the last block advances it for
// the next kernel, so no further kernel is needed for that.
//
// Kernels that share a counter execute one after the other on each rank.
#pragma once

#include "onehop/device/epoch.h"

namespace onehop::device {

/// Reads a count that only kernels of this rank advance, one after the other.
/// relaxed.gpu: pairs with the plain store of the previous kernel, which has ended.
__device__ __forceinline__ std::uint64_t read_count(const std::uint64_t* count) {
  std::uint64_t value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(count) : "memory");
  return value;
}

/// The epoch of this kernel, at least 1. Every thread reads it, as early as possible.
__device__ __forceinline__ std::uint64_t read_epoch(const EpochCounter& counter) {
  return read_count(&counter.epoch) + 1;
}

/// Called by one thread of every block of a grid (one-dimensional) or of one of its rows. Returns whether its
/// block is the last, and then resets the count. The relaxed atomicAdd pairs with those of the other blocks;
/// it orders nothing. The plain store pairs with the atomicAdds of the next kernel; this kernel ends between
/// them.
__device__ __forceinline__ bool last_to_arrive(std::uint32_t& arrivals) {
  if (gridDim.x == 1) return true;
  if (atomicAdd(&arrivals, 1u) != gridDim.x - 1) return false;
  arrivals = 0;
  return true;
}

/// Called once by all threads of every block (one-dimensional, in a one-dimensional grid), with the epoch
/// that they have read, after a barrier of the block. A barrier does not wait for loads whose values nothing
/// has used yet. So each thread must have used the epoch before the barrier, or pass it to the barrier
/// (__syncthreads_or).
__device__ __forceinline__ void advance_epoch(EpochCounter& counter, std::uint64_t epoch) {
  if (threadIdx.x != blockDim.x - 1 || !last_to_arrive(counter.arrivals)) return;
  // Plain: pairs with the load in read_epoch() of the next kernel; this kernel ends between them.
  counter.epoch = epoch;
}

}  // namespace onehop::device
