// SPDX-License-Identifier: Apache-2.0
// What every collective kernel does: find out the call's first epoch, move the rank's epoch on, and wait for
// what the peers send.
#pragma once

#include "onehop/device/signal.cuh"

#include "kernel/cuda/call_params.h"

namespace onehop::cuda {

// Epochs. The calls that use one family of slots are counted, on all ranks alike, since all make the same
// calls in the same order; a message that is too long for one launch is several calls. The count lives in
// device memory, so that a replayed graph counts on.
//
// The rule of two calls. In every call every rank hears from every other one. A call starts on a rank when
// the one before it has ended there, all its stores performed. So a rank that is in call e has heard from
// each peer in call e - 1, which the peer began when its call e - 2 had ended: memory of the parity of e may
// be written again without asking. This holds whatever threads and blocks did what, and whatever calls of
// other families came between.
//
// Room for others. All blocks of a call wait for the peers' blocks, so all must be resident at once, and so
// must those of another group that uses the same GPUs at the same time, since the GPUs may begin them in
// different orders. A kernel waits on at most half of what the multiprocessors hold (max_threads; in smaller
// blocks, no more threads); and one that takes more than a quarter does not let the next kernel of its stream
// start beside it.

/// Before anything is read or sent: this kernel may have been set up early, so it waits here until the one
/// before it has ended and its stores are performed.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// After wait_for_previous(): the next kernel of the stream may be set up from now on, if it was launched so;
/// otherwise it may when this one has ended. Not earlier, lest a queue of kernels fills the device waiting
/// for one another.
__device__ __forceinline__ void let_next_start(bool early) {
#if __CUDA_ARCH__ >= 900
  if (early) asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Polls between two looks at the clock and at who has failed, where many wait for long: milliseconds. With 4
/// ranks 2000 lanes of chunked.cuh wait at a time: looking as often as others do, they keep one another
/// waiting for PCIe until all wait long enough to look again, and so on, chunk after chunk.
inline constexpr int kPollsOfMany = 1 << 14;

/// This call's epoch. Read by every thread, as early as possible.
__device__ __forceinline__ std::uint64_t read_epoch(const Control& control) {
  std::uint64_t last;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(last) : "l"(&control.epoch) : "memory");
  return last + 1;
}

/// By all threads of every block, once all have read the epoch: the last block moves it on. Relaxed, since
/// the next reader is the next kernel of this stream or, with another stream, of a call that the host has
/// ordered after this one.
__device__ __forceinline__ void settle(Control& control, std::uint64_t epoch) {
  __syncthreads();
  if (threadIdx.x != blockDim.x - 1) return;
  if (gridDim.x > 1) {
    if (atomicAdd(&control.arrivals, 1u) != gridDim.x - 1) return;
    control.arrivals = 0;
  }
  control.epoch = epoch;
}

/// The slow side of await_all: a state for the next time, or device::kHopeless. `missing` is not 0.
static __device__ __noinline__ std::uint64_t reconsider(const DeviceGuard& guard, DeviceFault::Phase phase,
                                                        unsigned missing, std::uint64_t state) {
  constexpr std::uint64_t kHadLeft = 2;  // and the rank: it was looked for since
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

/// Looks until everything is there: look() tells; missing() then returns a bit for every rank whose data was
/// not. False: hopeless.
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
