// SPDX-License-Identifier: Apache-2.0
// Signals, waits and barriers for kernels, over the signal pads of a symmetric buffer.
//
//   // Every block has a channel of its own: group.allocate(bytes, {.channels = kBlocks})
//   __global__ void step(onehop::DeviceView view) {
//     auto* mine = reinterpret_cast<float*>(view.peers[view.rank]);
//     ...                                                       // write to own or peers' memory
//     if (!onehop::device::barrier(view, blockIdx.x)) return;   // now everyone's writes are visible
//     ...
//   }
//
// Every wait ends. It returns true on success. It returns false when the view's timeout has passed, the
// awaited rank has left, or the group has failed. The kernel should then return. The host sees the failure in
// Group::check and Group::synchronize, and later waits of this rank fail at once. Nothing traps: the context
// stays usable.
//
// Channels are 0 to view.channels - 1, ranks 0 to view.size - 1. A call with any other value has no effect
// except that it fails like a wait. It returns false and reports the invalid channel or rank and the limit to
// the host.
//
// At any time one thread (put_signal, wait_signal) or one block (barrier) of a rank owns a channel. Its
// counterparts on the other ranks are the same thread or block.
#pragma once

#include "onehop/device/view.h"

namespace onehop::device {

// --- memory operations, named after the PTX memory model ---

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
/// Time in nanoseconds. All blocks see the same clock; its resolution is coarse.
__device__ __forceinline__ std::uint64_t now_ns() {
  std::uint64_t value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return value;
}

// --- waiting ---

/// A wait takes its slow path (check_guard), a look, once every kPollsPerLook polls. The slow path is not inlined and
/// takes no references to the caller's variables, so that the fast path stays small and in registers.
inline constexpr unsigned kPollsPerLook = 256;
/// The most looks of a warp for each of its reads of the notice. That is in host memory, and reads of one address over
/// PCIe follow one another, 1.2 us each. When all warps read it in every look, a call of 2112 warps whose peer came 0.1 ms
/// late took 2.4 ms.
inline constexpr unsigned kLooksPerNotice = 64;
inline constexpr std::uint64_t kGiveUp = 0;
inline constexpr std::uint64_t kLookOnceMore = 1;

static __device__ __noinline__ void tell_host(const DeviceGuard& guard, std::uint64_t fault) {
  // Only the first of this rank's threads to fail reports to the host.
  if (atomicExch(guard.failed, 1u) == 0) store_relaxed(guard.fault, fault);
}

__device__ __forceinline__ void record_fault(const DeviceGuard& guard, DeviceFault::Reason reason,
                                             int awaited, std::uint32_t phase) {
  tell_host(guard,
            static_cast<std::uint64_t>(reason) << 56 | static_cast<std::uint64_t>(awaited) << 48 | phase);
}

/// Whether a wait of this rank's kernels has failed. relaxed.sys: pairs with tell_host() in an earlier kernel of this
/// rank, and with check_guard() in a running one.
[[nodiscard]] __device__ __forceinline__ bool has_failed(const DeviceGuard& guard) {
  return load_relaxed(guard.failed) != 0;
}

/// Whether the warp reads the notice in its look of this number. Warps take turns: in small grids one of them reads it in
/// every look, and what it learns the others find in device memory (has_failed).
[[nodiscard]] __device__ __forceinline__ bool reads_notice(unsigned look) {
  const unsigned warps = gridDim.x * ((blockDim.x + 31) / 32);
  const unsigned turns = warps < kLooksPerNotice ? warps : kLooksPerNotice;
  return (look + blockIdx.x + threadIdx.x / 32) % turns == 0;
}

/// Slow path of a wait for `awaited`. `look`: how often the wait was here before. Returns the deadline (pass it to the next
/// call; 0 in the first one), kGiveUp, or kLookOnceMore. The latter means that the rank has left: it will signal nothing more, but
/// what it signalled before leaving may have arrived, so the caller polls once more.
static __device__ __noinline__ std::uint64_t check_guard(const DeviceGuard& guard, int awaited,
                                                         std::uint32_t phase, std::uint64_t deadline,
                                                         unsigned look) {
  const std::uint32_t notice = reads_notice(look) ? load_relaxed(guard.notice) : 0;
  if (has_failed(guard)) return kGiveUp;
  if ((notice & DeviceGuard::kAbortNotice) != 0) {
    store_relaxed(guard.failed, 1);
    return kGiveUp;
  }
  if ((notice >> awaited & 1u) != 0) return kLookOnceMore;
  const std::uint64_t now = now_ns();
  if (deadline == 0) return now + guard.timeout_ns;
  if (now < deadline) return deadline;
  record_fault(guard, DeviceFault::timeout, awaited, phase);
  return kGiveUp;
}

/// Polls until `ready()`. Returns false when the wait cannot succeed.
template <class Ready>
__device__ __forceinline__ bool wait_until(const DeviceGuard& guard, int awaited, std::uint32_t phase,
                                           Ready ready) {
  std::uint64_t deadline = 0;
  for (unsigned look = 0;; ++look) {
    for (unsigned i = 0; i < kPollsPerLook; ++i) {
      if (ready()) return true;
    }
    deadline = check_guard(guard, awaited, phase, deadline, look);
    if (deadline == kGiveUp) return false;
    if (deadline != kLookOnceMore) continue;
    if (ready()) return true;
    record_fault(guard, DeviceFault::left, awaited, phase);
    return false;
  }
}

/// Slow path of wait_until_all; `missing` is not 0. Returns a state to pass to the next call (0 in the first
/// one), or kGiveUp.
static __device__ __noinline__ std::uint64_t reconsider(const DeviceGuard& guard, DeviceFault::Phase phase,
                                                        unsigned missing, std::uint64_t state,
                                                        unsigned look) {
  // Plus the rank: it has left, and its data was polled once more since.
  constexpr std::uint64_t kHadLeft = 2;
  static_assert(kHadLeft > kGiveUp && kHadLeft > kLookOnceMore);
  const int awaited = __ffs(static_cast<int>(missing)) - 1;
  if (state == kHadLeft + awaited) {
    record_fault(guard, DeviceFault::left, awaited, phase);
    return kGiveUp;
  }
  const std::uint64_t deadline = state < kHadLeft + kMaxDevices ? 0 : state;
  const std::uint64_t next = check_guard(guard, awaited, phase, deadline, look);
  return next == kLookOnceMore ? kHadLeft + awaited : next;
}

/// Polls several ranks' data together until all of it has arrived. look() returns whether it has; after a
/// failed look(), missing() returns a bit for every rank whose data has not. Returns false when the wait
/// cannot succeed.
template <class Look, class Missing>
__device__ __forceinline__ bool wait_until_all(const DeviceGuard& guard, DeviceFault::Phase phase,
                                               Look&& look, Missing&& missing) {
  std::uint64_t state = 0;
  for (unsigned polls = 1; !look(); ++polls) {
    if (polls % kPollsPerLook != 0) continue;
    state = reconsider(guard, phase, missing(), state, polls / kPollsPerLook);
    if (state == kGiveUp) return false;
  }
  return true;
}

// --- signals and barriers over a buffer's pads ---

/// Checks that the buffer has this channel and the group this rank. Reports to the host if not.
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

/// The channel in the signal pad of rank `rank`; both must be in range.
__device__ __forceinline__ SignalChannel& channel_of(const DeviceView& view, int rank, int channel) {
  return reinterpret_cast<SignalChannel*>(view.signal_pads[rank])[channel];
}

/// Signals `dst`: publishes what this thread wrote before, and the writes of others that it has observed.
__device__ inline void put_signal(const DeviceView& view, int dst, int channel) {
  if (!in_range(view, dst, channel, DeviceFault::signal)) return;
  std::uint32_t& count = channel_of(view, view.rank, channel).sent[dst];
  // release.sys: pairs with the acquire in wait_signal(); publishes the data.
  store_release(&channel_of(view, dst, channel).signal[view.rank], ++count);
}

/// Waits for the next signal of `src`. If it returns false, no signal was consumed.
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

/// Waits until the corresponding block of every rank has arrived at this channel. Everything that their
/// threads wrote before is then visible to all. Called by all threads of one block of at least `view.size`
/// threads.
__device__ inline bool barrier(const DeviceView& view, int channel) {
  if (!in_range(view, view.rank, channel, DeviceFault::barrier)) return false;
  SignalChannel& own = channel_of(view, view.rank, channel);
  const std::uint32_t epoch = own.barriers + 1;
  __syncthreads();  // all threads have read the epoch; orders the block's writes before the signals
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

/// A barrier that does not order data: for kernels that only need to know that all ranks have arrived.
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
