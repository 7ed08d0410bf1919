// SPDX-License-Identifier: Apache-2.0
// Steps common to all collective kernels: read the call's first epoch, advance the rank's epoch, and wait for
// data from the peers.
#pragma once

#include "onehop/device/signal.cuh"

#include "kernel/cuda/call_params.h"

namespace onehop::cuda {

// Epochs. The calls that use one family of slots are counted. All ranks make the same calls in the same order
// and so have the same count. A message that is too long for one launch is several calls. The count lives in
// device memory, so that graph replays continue it.
//
// The rule of two calls. In every call every rank receives data or flags from every other rank. A call starts
// on a rank when the previous one has ended there, with all its stores performed. So a rank in call e has
// received something from each peer in call e - 1, which the peer began after its call e - 2 had ended.
// Therefore memory with the parity of e may be overwritten without asking. This holds whichever threads and
// blocks did the work, and whatever calls of other families came between.
//
// Residency. All blocks of a call wait for the peers' blocks, so all must be resident at once. The same holds
// for the kernels of another group that uses the same GPUs at the same time, since the GPUs may start them in
// different orders. A kernel that waits therefore takes at most half of what the multiprocessors hold
// (max_threads; with smaller blocks, no more threads). A kernel that takes more than a quarter does not let
// the next kernel of its stream start beside it.

/// Called before anything is read or sent. With programmatic dependent launch this kernel may start early. It
/// waits here until the previous kernel has ended and its stores are performed.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Called after wait_for_previous(). If `early`, the next kernel of the stream may be launched from now on;
/// otherwise it is launched when this one has ended. Not earlier, or a queue of waiting kernels would fill
/// the device.
__device__ __forceinline__ void let_next_start(bool early) {
#if __CUDA_ARCH__ >= 900
  if (early) asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Polls between two checks of the clock and of failures, for kernels where many threads wait for
/// milliseconds. With 4 ranks, 2000 lanes of chunked.cuh wait at a time. If they checked as often as other
/// kernels do, they would delay one another on PCIe until all wait long enough to check again, chunk after
/// chunk.
inline constexpr int kPollsOfMany = 1 << 14;

/// This call's epoch. Every thread reads it, as early as possible.
__device__ __forceinline__ std::uint64_t read_epoch(const Control& control) {
  std::uint64_t last;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(last) : "l"(&control.epoch) : "memory");
  return last + 1;
}

/// Called by all threads of every block, after all have read the epoch: the last block advances it. Relaxed,
/// since the next reader is the next kernel of this stream. On another stream it is the kernel of a call that
/// the host has ordered after this one.
__device__ __forceinline__ void settle(Control& control, std::uint64_t epoch) {
  __syncthreads();
  if (threadIdx.x != blockDim.x - 1) return;
  if (gridDim.x > 1) {
    if (atomicAdd(&control.arrivals, 1u) != gridDim.x - 1) return;
    control.arrivals = 0;
  }
  control.epoch = epoch;
}

/// Slow path of await_all; `missing` is not 0. Returns a state to pass to the next call, or
/// device::kHopeless.
static __device__ __noinline__ std::uint64_t reconsider(const DeviceGuard& guard, DeviceFault::Phase phase,
                                                        unsigned missing, std::uint64_t state) {
  // Plus the rank: it has left, and its data was polled once more since.
  constexpr std::uint64_t kHadLeft = 2;
  static_assert(kHadLeft > device::kHopeless && kHadLeft > device::kLookOnceMore);
  const int awaited = __ffs(static_cast<int>(missing)) - 1;
  if (state == kHadLeft + awaited) {
    device::record_fault(guard, DeviceFault::left, awaited, phase);
    return device::kHopeless;
  }
  const std::uint64_t deadline = state < kHadLeft + kMaxDevices ? 0 : state;
  const std::uint64_t next = device::consult(guard, awaited, phase, deadline);
  return next == device::kLookOnceMore ? kHadLeft + awaited : next;
}

/// Polls until all data has arrived. look() returns whether it has; after a failed look(), missing() returns
/// a bit for every rank whose data has not. Returns false if the wait cannot succeed.
template <class Look, class Missing>
__device__ __forceinline__ bool await_all(const DeviceGuard& guard, DeviceFault::Phase phase, Look&& look,
                                          Missing&& missing) {
  std::uint64_t state = 0;
  for (int polls = 1; !look(); ++polls) {
    if (polls % device::kPollsPerLook != 0) continue;
    state = reconsider(guard, phase, missing(), state);
    if (state == device::kHopeless) return false;
  }
  return true;
}

}  // namespace onehop::cuda
