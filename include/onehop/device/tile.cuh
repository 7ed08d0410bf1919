// SPDX-License-Identifier: Apache-2.0
// Tiles of symmetric memory: push a tile to a peer and signal it, wait for a tile, and sum tiles over all
// ranks. element.cuh converts between 16 bytes of elements and floats.
//
//   onehop::device::put_tile(view, peer, channel, at, mine, kTileBytes);  // data, then the signal
//   if (!onehop::device::wait_tile(view, peer, channel)) return;          // then the block sees the data
//
//   if (!onehop::device::barrier(view, channel)) return;                  // all parts are written
//   onehop::device::reduce_tile<__nv_bfloat16>(view, at, bytes, [&](std::size_t i, const float (&sum)[8]) {
//     out[i] = onehop::device::narrow<__nv_bfloat16>(sum);
//   });
//   if (!onehop::device::barrier(view, channel)) return;                  // all have read
//
// put_tile, wait_tile and reduce_tile are called by all threads of a block of one dimension. Offsets, sizes
// and pointers are multiples of 16.
#pragma once

#include "onehop/device/element.cuh"
#include "onehop/device/reduce.cuh"
#include "onehop/device/signal.cuh"

namespace onehop::device {

/// Copies `bytes` bytes to byte `offset` of the part of rank `dst`, then signals `dst` on `channel`. The
/// matching wait_tile or wait_signal returns once the data is there. `dst` may be this rank.
__device__ inline void put_tile(const DeviceView& view, int dst, int channel, std::size_t offset,
                                const void* from, std::size_t bytes) {
  if (!in_range(view, dst, channel, DeviceFault::signal)) return;
  const auto* const source = static_cast<const uint4*>(from);
  auto* const target = reinterpret_cast<uint4*>(view.peers[dst] + offset);
  constexpr int kAtATime = 4;  // loads in flight before their stores
  for (std::size_t i = threadIdx.x; i < bytes / 16; i += kAtATime * blockDim.x) {
    uint4 vectors[kAtATime];
#pragma unroll
    for (int k = 0; k < kAtATime; ++k) {
      if (i + k * blockDim.x < bytes / 16) vectors[k] = source[i + k * blockDim.x];
    }
#pragma unroll
    for (int k = 0; k < kAtATime; ++k) {
      if (i + k * blockDim.x < bytes / 16) target[i + k * blockDim.x] = vectors[k];
    }
  }
  // The barrier orders all threads' stores before the signal, whose release (put_signal) covers them.
  __syncthreads();
  if (threadIdx.x == 0) put_signal(view, dst, channel);
}

/// Waits for the next signal of `src` on `channel`. Everything that `src` published with it is then visible
/// to the whole block.
[[nodiscard]] __device__ inline bool wait_tile(const DeviceView& view, int src, int channel) {
  bool came = true;
  // This thread performs the acquire (wait_signal); the barrier passes on what it observed to the block.
  if (threadIdx.x == 0) came = wait_signal(view, src, channel);
  return __syncthreads_and(came ? 1 : 0) != 0;
}

/// For each 16-byte vector of the `bytes` at byte `offset` of every rank's part, sums the elements over all
/// ranks. The sums are in f32 and in rank order, so that every rank gets the same bits. One thread calls
/// `sink(i, sums)` with the index of each vector. Needs a barrier (signal.cuh) before, when all parts are
/// written, and one after, before they are overwritten. kRanks is the number of ranks, or kMaxDevices for any
/// number.
template <class T, int kRanks = kMaxDevices, class Sink>
__device__ __forceinline__ void reduce_tile(const DeviceView& view, std::size_t offset, std::size_t bytes,
                                            Sink&& sink) {
  const int size = kRanks < kMaxDevices ? kRanks : view.size;
  // Issues all loads before the first addition. Plain loads see what the preceding barrier published; loads
  // through the read-only cache would not. Ranks that do not exist are replaced by rank 0, without branches.
  const auto load = [&](int r, std::size_t i, Packet<16>& packet) {
    const std::byte* const at = view.peers[r < size ? r : 0] + offset + 16 * i;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(packet.words[0]), "=r"(packet.words[1]), "=r"(packet.words[2]), "=r"(packet.words[3])
                 : "l"(at)
                 : "memory");
  };
  load_ahead<kRanks, 1>(std::size_t{threadIdx.x}, bytes / 16, std::size_t{blockDim.x}, load,
                        [&](std::size_t i, const Packet<16>(&packets)[kRanks]) {
                          const auto total = accumulate<FormatOf<T>, ReduceOp::sum, 16, kRanks>(
                              size, [&](int r) { return packets[r]; });
                          sink(i, total.at);
                        });
}

}  // namespace onehop::device
