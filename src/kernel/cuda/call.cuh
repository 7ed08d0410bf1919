// What every collective kernel does at its start: find out the call's first epoch, and move the rank's epoch
// on.
#pragma once

#include "onehop/device/signal.cuh"

#include "kernel/cuda/all_reduce_params.h"

namespace onehop::cuda {

// Epochs. Passes of calls are counted, on all ranks alike, since all make the same calls in the same order.
// The count lives in device memory, so that a replayed graph counts on. In every pass every rank hears from
// every other one, in the same block; and a call starts on a rank when the one before it has ended there.
// Hence no rank's pass is more than one ahead of another's, in the same block or across calls, and memory of
// the parity of an epoch may be written again two epochs later without asking.

struct Start {
  std::uint64_t epoch;  ///< of the call's first pass
  bool failed;          ///< this rank's earlier call failed: peers are not waited for again
};

/// First of all in every kernel. The next kernel of the stream may be set up from now on, if it was launched
/// so; and this one, if it was, waits here until the one before it has ended and its stores are performed.
__device__ __forceinline__ void enter() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Read by every thread, as early as possible.
__device__ __forceinline__ Start read_start(const Control& control) {
  std::uint64_t epoch;
  std::uint64_t rest;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(epoch), "=l"(rest)
               : "l"(&control)
               : "memory");
  return {epoch + 1, rest >> 32 != 0};
}

/// By one thread of each block, after all threads of the block have read the start: the last one moves the
/// epoch on. Relaxed, since the next reader is the next kernel of this stream or, with another stream, of a
/// call that the host has ordered after this one.
__device__ __forceinline__ void advance(Control& control, const Start& start, std::uint32_t passes) {
  if (gridDim.x > 1) {
    if (atomicAdd(&control.arrivals, 1u) != gridDim.x - 1) return;
    control.arrivals = 0;
  }
  control.epoch = start.epoch + passes - 1;
}

}  // namespace onehop::cuda
