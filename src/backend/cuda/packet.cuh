// SPDX-License-Identifier: Apache-2.0
// Moves data in units of 8 or 16 bytes, for any alignment and total length.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onehop/device/element.cuh"

namespace onehop::cuda {

using device::get;
using device::Packet;
using device::set;

/// Selects by value: choosing between references would put both in local memory.
template <int kBytes>
__device__ __forceinline__ Packet<kBytes> choose(bool first, const Packet<kBytes>& a,
                                                 const Packet<kBytes>& b) {
  Packet<kBytes> packet;
#pragma unroll
  for (int i = 0; i < Packet<kBytes>::kWords; ++i) packet.words[i] = first ? a.words[i] : b.words[i];
  return packet;
}

template <int kBytes>
__device__ __forceinline__ Packet<kBytes> load_whole(const std::byte* from) {
  Packet<kBytes> packet;
  if constexpr (kBytes == 16) {
    const uint4 v = *reinterpret_cast<const uint4*>(from);
    packet.words[0] = v.x, packet.words[1] = v.y, packet.words[2] = v.z, packet.words[3] = v.w;
  } else {
    const uint2 v = *reinterpret_cast<const uint2*>(from);
    packet.words[0] = v.x, packet.words[1] = v.y;
  }
  return packet;
}

/// The same load with a predicate instead of a branch, so that later instructions need not wait for the
/// condition.
template <int kBytes>
__device__ __forceinline__ Packet<kBytes> load_whole_if(bool when, const std::byte* from) {
  Packet<kBytes> packet{};
  if constexpr (kBytes == 16) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0; @p ld.global.v4.u32 {%0, %1, %2, %3}, [%5]; }"
                 : "+r"(packet.words[0]), "+r"(packet.words[1]), "+r"(packet.words[2]), "+r"(packet.words[3])
                 : "r"(static_cast<unsigned>(when)), "l"(from)
                 : "memory");
  } else {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.v2.u32 {%0, %1}, [%3]; }"
                 : "+r"(packet.words[0]), "+r"(packet.words[1])
                 : "r"(static_cast<unsigned>(when)), "l"(from)
                 : "memory");
  }
  return packet;
}

template <int kBytes>
__device__ __forceinline__ void store_whole(std::byte* to, const Packet<kBytes>& packet) {
  if constexpr (kBytes == 16) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(packet.words[0]),
                 "r"(packet.words[1]), "r"(packet.words[2]), "r"(packet.words[3])
                 : "memory");
  } else {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(packet.words[0]), "r"(packet.words[1])
                 : "memory");
  }
}

/// Loads the packet at byte `at` of `bytes` bytes of T, element by element. Elements beyond the end count as
/// zero. Out of line because it is rare: see push.cuh.
template <class T, int kBytes>
__device__ __noinline__ Packet<kBytes> load_ragged(const std::byte* data, std::size_t at, std::size_t bytes) {
  Packet<kBytes> packet{};
#pragma unroll
  for (int i = 0; i < static_cast<int>(kBytes / sizeof(T)); ++i) {
    const std::size_t position = at + i * sizeof(T);
    if (position < bytes) set<T>(packet, i, *reinterpret_cast<const T*>(data + position));
  }
  return packet;
}
template <class T, int kBytes>
__device__ __noinline__ void store_ragged(std::byte* data, std::size_t at, std::size_t bytes,
                                          Packet<kBytes> packet) {
#pragma unroll
  for (int i = 0; i < static_cast<int>(kBytes / sizeof(T)); ++i) {
    const std::size_t position = at + i * sizeof(T);
    if (position < bytes) *reinterpret_cast<T*>(data + position) = get<T>(packet, i);
  }
}

/// `aligned`: both data and `at` are aligned to kBytes.
template <class T, int kBytes>
__device__ __forceinline__ Packet<kBytes> load_packet(const std::byte* data, std::size_t at,
                                                      std::size_t bytes, bool aligned) {
  if (aligned && at + kBytes <= bytes) return load_whole<kBytes>(data + at);
  return load_ragged<T, kBytes>(data, at, bytes);
}
template <class T, int kBytes>
__device__ __forceinline__ void store_packet(std::byte* data, std::size_t at, std::size_t bytes, bool aligned,
                                             const Packet<kBytes>& packet) {
  if (aligned && at + kBytes <= bytes) {
    store_whole(data + at, packet);
  } else {
    store_ragged<T, kBytes>(data, at, bytes, packet);
  }
}

/// Load and store bytes of the user's memory, with any alignment.
template <int kBytes>
__device__ __forceinline__ Packet<kBytes> load_bytes(const std::byte* data, std::size_t at,
                                                     std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(data + at);
  if (at + kBytes <= bytes) {
    if (address % kBytes == 0) return load_whole<kBytes>(data + at);
    if (address % 4 == 0) {
      Packet<kBytes> packet;
#pragma unroll
      for (int i = 0; i < kBytes / 4; ++i) {
        packet.words[i] = reinterpret_cast<const std::uint32_t*>(data + at)[i];
      }
      return packet;
    }
  }
  return load_ragged<std::uint8_t, kBytes>(data, at, bytes);
}
template <int kBytes>
__device__ __forceinline__ void store_bytes(std::byte* data, std::size_t at, std::size_t bytes,
                                            const Packet<kBytes>& packet) {
  const auto address = reinterpret_cast<std::uintptr_t>(data + at);
  if (at + kBytes <= bytes) {
    if (address % kBytes == 0) return store_whole(data + at, packet);
    if (address % 4 == 0) {
#pragma unroll
      for (int i = 0; i < kBytes / 4; ++i) {
        reinterpret_cast<std::uint32_t*>(data + at)[i] = packet.words[i];
      }
      return;
    }
  }
  store_ragged<std::uint8_t, kBytes>(data, at, bytes, packet);
}

/// Stores a packet of ones, which is a NaN in every floating-point format, at byte `at` of `bytes` bytes with any
/// alignment: the output of a call that has failed (sync/call.cuh).
template <int kBytes>
__device__ __forceinline__ void store_nan(std::byte* data, std::size_t at, std::size_t bytes) {
  Packet<kBytes> nan;
#pragma unroll
  for (std::uint32_t& word : nan.words) word = ~std::uint32_t{0};
  store_bytes(data, at, bytes, nan);
}

}  // namespace onehop::cuda
