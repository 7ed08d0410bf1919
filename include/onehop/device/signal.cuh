// Signals, waits and barriers for kernels, over the pads of a symmetric buffer.
//
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

static __device__ __noinline__ void record_fault(const DeviceGuard& guard, DeviceFault::Reason reason,
                                                 int awaited, std::uint32_t phase) {
  // The first of this rank's threads tells the host.
  if (atomicExch(guard.failed, 1u) == 0) {
    store_relaxed(guard.fault, static_cast<std::uint64_t>(reason) << 56 |
                                   static_cast<std::uint64_t>(awaited) << 48 | phase);
  }
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

__device__ __forceinline__ DevicePad& pad_of(const DeviceView& view, int rank) {
  return *reinterpret_cast<DevicePad*>(view.signal_pads[rank]);
}

/// Tells `dst` that what this thread wrote before (and what it knows that others wrote) is ready.
__device__ inline void put_signal(const DeviceView& view, int dst, int channel) {
  std::uint32_t& count = pad_of(view, view.rank).sent[channel][dst];
  // release.sys: pairs with the acquire in wait_signal(); publishes the data.
  store_release(&pad_of(view, dst).signal[channel][view.rank], ++count);
}

/// Waits for the next signal of `src`. On false no signal was taken.
__device__ inline bool wait_signal(const DeviceView& view, int src, int channel) {
  DevicePad& own = pad_of(view, view.rank);
  const std::uint32_t wanted = own.awaited[channel][src] + 1;
  const std::uint32_t* const word = &own.signal[channel][src];
  // acquire.sys: pairs with the release in put_signal().
  const bool came = wait_until(view.guard, src, DeviceFault::signal,
                               [=] { return static_cast<std::int32_t>(load_acquire(word) - wanted) >= 0; });
  if (came) own.awaited[channel][src] = wanted;
  return came;
}

/// All ranks' blocks arrive at this channel; what any of their threads wrote before is visible to all after.
/// Called by all threads of one block of at least `view.size` threads.
__device__ inline bool barrier(const DeviceView& view, int channel) {
  DevicePad& own = pad_of(view, view.rank);
  const std::uint32_t epoch = own.barriers[channel] + 1;
  __syncthreads();  // everyone has read the epoch, and the block's writes come before the signals
  const int peer = static_cast<int>(threadIdx.x);
  bool came = true;
  if (peer < view.size && peer != view.rank) {
    // release.sys: pairs with the acquire below, on the peer; publishes what the block wrote.
    store_release(&pad_of(view, peer).barrier[channel][view.rank], epoch);
    const std::uint32_t* const word = &own.barrier[channel][peer];
    came = wait_until(view.guard, peer, DeviceFault::barrier,
                      [=] { return static_cast<std::int32_t>(load_acquire(word) - epoch) >= 0; });
  }
  if (peer == 0) own.barriers[channel] = epoch;
  return __syncthreads_and(came ? 1 : 0) != 0;
}

/// The same without ordering data: for kernels that only need to know that everyone is there.
__device__ inline bool barrier_relaxed(const DeviceView& view, int channel) {
  DevicePad& own = pad_of(view, view.rank);
  const std::uint32_t epoch = own.barriers[channel] + 1;
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  bool came = true;
  if (peer < view.size && peer != view.rank) {
    store_relaxed(&pad_of(view, peer).barrier[channel][view.rank], epoch);
    const std::uint32_t* const word = &own.barrier[channel][peer];
    came = wait_until(view.guard, peer, DeviceFault::barrier,
                      [=] { return static_cast<std::int32_t>(load_relaxed(word) - epoch) >= 0; });
  }
  if (peer == 0) own.barriers[channel] = epoch;
  return __syncthreads_and(came ? 1 : 0) != 0;
}

}  // namespace onehop::device
