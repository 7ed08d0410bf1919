// SPDX-License-Identifier: Apache-2.0
// Two-shot all-reduce by copy engines, for long messages. There, starting a copy costs less than kernels lose
// on the links: copy engines move 389 GB/s per direction, stores 350 to 363 GB/s.
//
// Protocol. The message is cut into one piece per rank, and each piece into the same rounds. In round k every
// rank
//   scatters  its input for every other rank's piece into that rank's slots of phase 0 (copy engine);
//   adds      the received data and its own input into its output (kernel);
//   gathers   these sums into every peer's slots of phase 1 (copy engine);
//   collects  the received sums into its output (kernel).
// The copies run in one stream, the kernels in another (the caller's):
//   copies:   scatter 0, scatter 1, gather 0, scatter 2, gather 1, ...
//   kernels:  add 0, add 1, collect 0, add 2, collect 1, ...
// A rank copies to one peer after the other, so that no two ranks copy to the same one at a time. Events
// order the two streams of a rank: add k follows scatter k, gather k and scatter k + 1 follow add k, collect
// k follows gather k.
//
// Between ranks there is one count for adds, one for collects, and a flag per peer. When a kernel starts, it
// raises its flag on every peer and waits for the peers' flags. The flag says that the earlier copies and
// kernels of its rank have ended. Slots exist twice, for even and odd rounds, and are free when they are
// written:
//   phase 0: scatter k + 2 follows add k + 1. That kernel knows that every rank's add k, the kernel before,
//            has ended.
//   phase 1: gather k follows add k. That kernel knows that every rank's collect k - 2, the kernel before,
//            has ended.
// The first rounds of a call follow the last kernel of the previous call. That kernel was a collect, so it
// knows that every rank's adds have ended; and every rank's first add tells that its last collect has ended.
// In-place calls work: a part of the output is written after the input there has been copied and added.
#pragma once

#include "kernel/cuda/meeting.cuh"
#include "kernel/cuda/packet.cuh"

namespace onehop::cuda {

template <class E, Op kOp, int kRanks>
__device__ __forceinline__ void add_round(const RoundParams& p) {
  using Stored = typename E::Stored;
  if (!meet(p.meeting)) return;
  const int size = kRanks < kMaxDevices ? kRanks : p.meeting.size;
  constexpr unsigned kAtOnce = kRanks < kMaxDevices ? 2 : 1;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x * 16;
  const std::size_t own = static_cast<unsigned>(p.meeting.rank) * p.piece + p.begin;
  for (std::size_t at = (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x) * 16; at < p.chunk;
       at += kAtOnce * stride) {
    Packet<16> data[kAtOnce][kRanks];
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i) {
      const std::size_t here = at + i * stride;
      if (here >= p.chunk) continue;
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        if (r >= size) continue;
        data[i][r] = r == p.meeting.rank
                         ? load_packet<Stored, 16>(p.in, own + here, p.bytes, p.aligned)
                         : load_whole<16>(p.inbox + static_cast<unsigned>(r) * p.rank_stride + here);
      }
    }
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i) {
      const std::size_t here = at + i * stride;
      if (here >= p.chunk) continue;
      Accumulator<E, kOp, 16> total(data[i][0]);
#pragma unroll
      for (int r = 1; r < kRanks; ++r) {
        if (r < size) total.add(data[i][r]);
      }
      store_packet<Stored, 16>(p.out, own + here, p.bytes, p.aligned, total.result(p.scale));
    }
  }
}

/// Serves elements of any type.
__device__ __forceinline__ void collect_round(const RoundParams& p) {
  if (!meet(p.meeting)) return;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x * 16;
  for (int step = 1; step < p.meeting.size; ++step) {
    const int r = p.meeting.rank + step < p.meeting.size ? p.meeting.rank + step
                                                         : p.meeting.rank + step - p.meeting.size;
    const std::byte* const from = p.inbox + static_cast<unsigned>(r) * p.rank_stride;
    const std::size_t to = static_cast<unsigned>(r) * p.piece + p.begin;
    for (std::size_t at = (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x) * 16; at < p.chunk;
         at += 2 * stride) {
      const bool two = at + stride < p.chunk;
      const Packet<16> one = load_whole<16>(from + at);
      const Packet<16> other = load_whole<16>(from + (two ? at + stride : at));
      store_packet<std::uint8_t, 16>(p.out, to + at, p.bytes, p.aligned, one);
      if (two) store_packet<std::uint8_t, 16>(p.out, to + at + stride, p.bytes, p.aligned, other);
    }
  }
}

}  // namespace onehop::cuda
