// SPDX-License-Identifier: Apache-2.0
// LL (low latency), as in NCCL: 4 bytes of data and the low 32 bits of the epoch form one aligned word of
// 8 bytes, which arrives whole. A receiver that reads the epoch also has the data: no fence, no barrier, one
// one-way trip. Carries any type, for twice the bytes.
//
// The words are never cleared; the flags left in them are older epochs. They may be overwritten by the rule
// of two calls (docs/memory-model.md). The 32 bits wrap after 2^32 epochs. Every kScrubPeriod epochs, two
// kernels in a row (one for each of the two slots in turn) therefore also rewrite the words behind their
// data, so that no flag grows that old.
#pragma once

#include "onehop/device/wire/words.cuh"

namespace onehop::device {

/// 4, 8 or 16 bytes of data, as they travel.
template <int kBytes>
struct LLWire {
  static constexpr int kCount = kBytes / 4;
  static constexpr int kWidening = 2;  ///< bytes in memory per byte of data

  std::uint64_t at[kCount];

  [[nodiscard]] static __device__ __forceinline__ LLWire encode(const std::uint32_t (&data)[kCount],
                                                                std::uint32_t flag) {
    LLWire wire;
#pragma unroll
    for (int i = 0; i < kCount; ++i) wire.at[i] = static_cast<std::uint64_t>(flag) << 32 | data[i];
    return wire;
  }
  __device__ __forceinline__ void send(std::byte* to) const {
    send_words(to, at);
  }
  [[nodiscard]] static __device__ __forceinline__ LLWire poll(const std::byte* from) {
    LLWire wire;
    poll_words(from, wire.at);
    return wire;
  }
  [[nodiscard]] __device__ __forceinline__ bool arrived(std::uint32_t flag) const {
    bool all = true;
#pragma unroll
    for (int i = 0; i < kCount; ++i) all = all && static_cast<std::uint32_t>(at[i] >> 32) == flag;
    return all;
  }
  __device__ __forceinline__ void decode(std::uint32_t (&data)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) data[i] = static_cast<std::uint32_t>(at[i]);
  }
};

inline constexpr std::uint32_t kScrubPeriod = 1u << 30;

[[nodiscard]] __device__ __forceinline__ bool scrub_due(std::uint64_t epoch) {
  return static_cast<std::uint32_t>(epoch) % kScrubPeriod < 2;
}

/// Stores the flag in the words [begin, end) of a slot, 8 bytes each. Called by all threads of the grid
/// (one-dimensional, or a row of it).
__device__ __forceinline__ void scrub(std::byte* slot, std::size_t begin, std::size_t end,
                                      std::uint32_t flag) {
  const std::size_t threads = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = begin + std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < end; i += threads) {
    LLWire<4>::encode({0}, flag).send(slot + 8 * i);
  }
}

}  // namespace onehop::device
