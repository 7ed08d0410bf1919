// SPDX-License-Identifier: Apache-2.0
// Signals, waits and barriers for kernels, over the pads of a symmetric buffer.
//
//   // Every block has a channel of its own: group.allocate(bytes, {.channels = kBlocks})
//   __global__ void step(onehop::DeviceView view) {
//     auto* mine = reinterpret_cast<float*>(view.peers[view.rank]);
//     ...                                                       // write to own or peers' memory
//     if (!onehop::device::barrier(view, blockIdx.x)) return;   // now everyone's writes are visible
//     ...
//   }
//
// Every wait ends: with what it waits for, or false when the view's timeout passed, the awaited rank has
// left, or the group failed. Then the kernel should return; the host hears of it (Group::check,
// Group::synchronize), and later waits of this rank fail at once. Nothing traps: the context stays usable.
//
// Channels are 0 to view.channels - 1, ranks 0 to view.size - 1. A call with any other one does nothing but
// fail like a wait: it returns false, and the host hears which channel or rank it was and what the limit is.
//
// A channel belongs to one thread (put_signal, wait_signal) or one block (barrier) of the rank at a time, and
// to the same one's counterpart on the others.
#pragma once

#include "onehop/device/view.h"

namespace onehop::device {

// --- memory operations, by the names of the PTX memory model ---

__device__ __forceinline__ std::uint32_t load_relaxed(const std::uint32_t* at) {
  std::uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ __forceinline__ std::uint64_t load_relaxed(const std::uint64_t* at) {
  std::uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}
__device__ __forceinline__ std::uint32_t load_acquire(const std::uint32_t* at) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ __forceinline__ std::uint64_t load_acquire(const std::uint64_t* at) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}
__device__ __forceinline__ void store_relaxed(std::uint32_t* at, std::uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ __forceinline__ void store_relaxed(std::uint64_t* at, std::uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
__device__ __forceinline__ void store_release(std::uint32_t* at, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ __forceinline__ void store_release(std::uint64_t* at, std::uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
/// Nanoseconds, the same clock on all blocks; ticks coarsely.
__device__ __forceinline__ std::uint64_t now_ns() {
  std::uint64_t value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return value;
}

// --- waiting ---

/// The slow side of a wait, consulted once every kPollsPerLook polls. Not inlined and without references to
/// the caller's variables, so that the fast side stays small and in registers.
inline constexpr int kPollsPerLook = 256;
inline constexpr std::uint64_t kHopeless = 0;
inline constexpr std::uint64_t kLookOnceMore = 1;

static __device__ __noinline__ void tell_host(const DeviceGuard& guard, std::uint64_t fault) {
  // The first of this rank's threads tells the host.
  if (atomicExch(guard.failed, 1u) == 0) store_relaxed(guard.fault, fault);
}

__device__ __forceinline__ void record_fault(const DeviceGuard& guard, DeviceFault::Reason reason,
                                             int awaited, std::uint32_t phase) {
  tell_host(guard,
            static_cast<std::uint64_t>(reason) << 56 | static_cast<std::uint64_t>(awaited) << 48 | phase);
}

/// What becomes of a wait for `awaited` that began long ago. Returns its deadline (pass it on the next time;
/// 0 the first time), kHopeless, or kLookOnceMore: the rank has left, so that what it has not done will not
/// be done; but what it did came before its leaving.
static __device__ __noinline__ std::uint64_t consult(const DeviceGuard& guard, int awaited,
                                                     std::uint32_t phase, std::uint64_t deadline) {
  const std::uint32_t notice = load_relaxed(guard.notice);
  if (load_relaxed(guard.failed) != 0) return kHopeless;
  if ((notice & DeviceGuard::kAbortNotice) != 0) {
    store_relaxed(guard.failed, 1);
    return kHopeless;
  }
  if ((notice >> awaited & 1u) != 0) return kLookOnceMore;
  const std::uint64_t now = now_ns();
  if (deadline == 0) return now + guard.timeout_ns;
  if (now < deadline) return deadline;
  record_fault(guard, DeviceFault::timeout, awaited, phase);
  return kHopeless;
}

/// Polls until `ready()`; false when that is hopeless. kPolls: for kernels in which thousands of threads wait
/// for long, lest their looking at the host's memory, across PCIe, is what they then wait for.
template <int kPolls = kPollsPerLook, class Ready>
__device__ __forceinline__ bool wait_until(const DeviceGuard& guard, int awaited, std::uint32_t phase,
                                           Ready ready) {
  std::uint64_t deadline = 0;
  while (true) {
    for (int i = 0; i < kPolls; ++i) {
      if (ready()) return true;
    }
    deadline = consult(guard, awaited, phase, deadline);
    if (deadline == kHopeless) return false;
    if (deadline != kLookOnceMore) continue;
    if (ready()) return true;
    record_fault(guard, DeviceFault::left, awaited, phase);
    return false;
  }
}

// --- signals and barriers over a buffer's pads ---

/// Whether the buffer has this channel and its group this rank. If not, the host hears of it.
[[nodiscard]] __device__ __forceinline__ bool in_range(const DeviceView& view, int rank, int channel,
                                                       DeviceFault::Phase phase) {
  const bool no_rank = static_cast<unsigned>(rank) >= static_cast<unsigned>(view.size);
  const bool no_channel = static_cast<unsigned>(channel) >= static_cast<unsigned>(view.channels);
  if (!no_rank && !no_channel) return true;
  const DeviceFault::Reason reason = no_rank ? DeviceFault::no_rank : DeviceFault::no_channel;
  const auto limit = static_cast<std::uint64_t>(no_rank ? view.size : view.channels);
  tell_host(view.guard, static_cast<std::uint64_t>(reason) << 56 | static_cast<std::uint64_t>(phase) << 48 |
                            limit << 32 | static_cast<std::uint32_t>(no_rank ? rank : channel));
  return false;
}

/// Of the pad of rank `rank`; both must be in range.
__device__ __forceinline__ SignalChannel& channel_of(const DeviceView& view, int rank, int channel) {
  return reinterpret_cast<SignalChannel*>(view.signal_pads[rank])[channel];
}

/// Tells `dst` that what this thread wrote before (and what it knows that others wrote) is ready.
__device__ inline void put_signal(const DeviceView& view, int dst, int channel) {
  if (!in_range(view, dst, channel, DeviceFault::signal)) return;
  std::uint32_t& count = channel_of(view, view.rank, channel).sent[dst];
  // release.sys: pairs with the acquire in wait_signal(); publishes the data.
  store_release(&channel_of(view, dst, channel).signal[view.rank], ++count);
}

/// Waits for the next signal of `src`. On false no signal was taken.
__device__ inline bool wait_signal(const DeviceView& view, int src, int channel) {
  if (!in_range(view, src, channel, DeviceFault::signal)) return false;
  SignalChannel& own = channel_of(view, view.rank, channel);
  const std::uint32_t wanted = own.awaited[src] + 1;
  const std::uint32_t* const word = &own.signal[src];
  // acquire.sys: pairs with the release in put_signal().
  const bool came = wait_until(view.guard, src, DeviceFault::signal,
                               [=] { return static_cast<std::int32_t>(load_acquire(word) - wanted) >= 0; });
  if (came) own.awaited[src] = wanted;
  return came;
}

/// All ranks' blocks arrive at this channel; what any of their threads wrote before is visible to all after.
/// Called by all threads of one block of at least `view.size` threads.
__device__ inline bool barrier(const DeviceView& view, int channel) {
  if (!in_range(view, view.rank, channel, DeviceFault::barrier)) return false;
  SignalChannel& own = channel_of(view, view.rank, channel);
  const std::uint32_t epoch = own.barriers + 1;
  __syncthreads();  // everyone has read the epoch, and the block's writes come before the signals
  const int peer = static_cast<int>(threadIdx.x);
  bool came = true;
  if (peer < view.size && peer != view.rank) {
    // release.sys: pairs with the acquire below, on the peer; publishes what the block wrote.
    store_release(&channel_of(view, peer, channel).barrier[view.rank], epoch);
    const std::uint32_t* const word = &own.barrier[peer];
    came = wait_until(view.guard, peer, DeviceFault::barrier,
                      [=] { return static_cast<std::int32_t>(load_acquire(word) - epoch) >= 0; });
  }
  if (peer == 0) own.barriers = epoch;
  return __syncthreads_and(came ? 1 : 0) != 0;
}

/// The same without ordering data: for kernels that only need to know that everyone is there.
__device__ inline bool barrier_relaxed(const DeviceView& view, int channel) {
  if (!in_range(view, view.rank, channel, DeviceFault::barrier)) return false;
  SignalChannel& own = channel_of(view, view.rank, channel);
  const std::uint32_t epoch = own.barriers + 1;
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  bool came = true;
  if (peer < view.size && peer != view.rank) {
    store_relaxed(&channel_of(view, peer, channel).barrier[view.rank], epoch);
    const std::uint32_t* const word = &own.barrier[peer];
    came = wait_until(view.guard, peer, DeviceFault::barrier,
                      [=] { return static_cast<std::int32_t>(load_relaxed(word) - epoch) >= 0; });
  }
  if (peer == 0) own.barriers = epoch;
  return __syncthreads_and(came ? 1 : 0) != 0;
}

}  // namespace onehop::device
