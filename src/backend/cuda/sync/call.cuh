// SPDX-License-Identifier: Apache-2.0
// What all collective kernels have in common: the rules for epochs and residency, and programmatic dependent
// launch.
#pragma once

#include "onehop/device/epoch.cuh"
#include "onehop/device/signal.cuh"

#include "backend/cuda/scratch.h"

namespace onehop::cuda {

// Epochs (onehop/device/epoch.cuh). The calls that use one family of slots are counted. All ranks make the
// same calls in the same order and so have the same count. A message that is too long for one launch is
// several calls.
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
// (max_threads; with smaller blocks, no more threads). With ONEHOP_MAX_BLOCKS it takes more, if the user knows that there is no
// other group.
//
// The next kernel of the stream may start beside it (let_next_start), and waits then for its end. A kernel that takes at
// most a quarter allows that at once: the two take at most three quarters, since a kernel that takes more than half with its
// blocks that copy does not start beside it (may_start_early). A kernel that takes more than a quarter allows it once each
// of its blocks has received something in this call from all ranks that the block waits for. Their kernels run, then, and have room for
// all their blocks. So the call ends whatever the GPUs start next, and if the two kernels take everything, others wait
// for that end and for nothing else. Long calls do not allow it: they leave half of the device to others while they run.
// Nor do large kernels of two-shot, reduce-scatters that do not stream, and point-to-point channels
// (bench/results/gpu-kernels.md).

// Failed calls. A thread whose wait fails fills what it has not written of its output with NaN, if the parameters
// say `poison`: floating-point output must not look right when it is not. Every later kernel of the rank does the
// same to all that other ranks contribute to, because a peer that was late may still deliver data of an earlier call. So each kernel
// reads whether the rank has failed (device::has_failed) along with its epoch, where the load costs no time.
// A thread fills only what it would have written, in place too. What this rank still sends of a failed call in place
// may therefore be NaN.

/// Called before anything is read or sent. With programmatic dependent launch this kernel may start early. It
/// waits here until the previous kernel has ended and its stores are performed.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Called after wait_for_previous(), or a queue of waiting kernels would fill the device. If `now`, this block no longer
/// keeps the next kernel of the stream from starting; one thread's call is enough. A block that ends does not either.
__device__ __forceinline__ void let_next_start(bool now) {
#if __CUDA_ARCH__ >= 900
  if (now) asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Called by all threads of every block once they have used the epoch: counts this call for the next one.
__device__ __forceinline__ void settle(EpochCounter& counter, std::uint64_t epoch) {
  __syncthreads();
  device::advance_epoch(counter, epoch);
}

}  // namespace onehop::cuda
