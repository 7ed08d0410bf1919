// SPDX-License-Identifier: Apache-2.0
// Reduces what copy engines have delivered for this rank's piece of a message (window_barrier.cuh).
#pragma once

#include "backend/cuda/algorithms/copy_engine/copy_engine.h"
#include "backend/cuda/packet.cuh"
#include "backend/cuda/reduce.cuh"
#include "backend/cuda/sync/barrier.cuh"

namespace onehop::cuda {

template <class E, Ops kOps, int kRanks>
__device__ __forceinline__ void reduce_piece(const ReducePieceParams& p) {
  using Stored = typename E::Stored;
  if (!arrive_and_wait(p.barrier)) return;
  const int size = kRanks < kMaxDevices ? kRanks : p.barrier.size;
  constexpr unsigned kAtOnce = kRanks < kMaxDevices ? 2 : 1;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x * 16;
  const std::size_t own = static_cast<unsigned>(p.barrier.rank) * p.piece + p.begin;
  device::load_ahead<kRanks, kAtOnce>(
      (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x) * 16, p.length, stride,
      [&](int r, std::size_t at, Packet<16>& packet) {
        if (r >= size) return;
        packet = r == p.barrier.rank
                     ? load_packet<Stored, 16>(p.in, own + at, p.bytes, p.aligned)
                     : load_whole<16>(p.inbox + static_cast<unsigned>(r) * p.rank_stride + at);
      },
      [&](std::size_t at, const Packet<16>(&packets)[kRanks]) {
        const Packet<16> result =
            cuda::reduce<E, kOps, 16, kRanks>(size, p.scale, [&](int r) { return packets[r]; });
        store_packet<Stored, 16>(p.out, own + at, p.bytes, p.aligned, result);
      });
}

}  // namespace onehop::cuda
