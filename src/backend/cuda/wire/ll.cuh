// SPDX-License-Identifier: Apache-2.0
// LL packets (onehop/device/wire/ll.cuh) for push.cuh.
#pragma once

#include "onehop/device/wire/ll.cuh"

#include "backend/cuda/packet.cuh"

namespace onehop::cuda {

template <class E>
struct LL {
  static constexpr int kWidth = 8;    ///< bytes of data that one thread moves at a time
  static constexpr int kStride = 16;  ///< bytes that these occupy in a slot
  static constexpr bool kScrubs = true;
  using Data = Packet<kWidth>;
  using Wire = device::LLWire<kWidth>;

  std::uint32_t flag;
  __device__ __forceinline__ explicit LL(std::uint64_t epoch) : flag(static_cast<std::uint32_t>(epoch)) {}

  [[nodiscard]] __device__ __forceinline__ Wire wire(const Data& data) const {
    return Wire::encode(data.words, flag);
  }
  static __device__ __forceinline__ void send(std::byte* to, const Wire& wire) { wire.send(to); }
  static __device__ __forceinline__ Wire peek(const std::byte* from) { return Wire::poll(from); }
  [[nodiscard]] __device__ __forceinline__ bool arrived(const Wire& wire) const { return wire.arrived(flag); }
  static __device__ __forceinline__ Data data(const Wire& wire) {
    Data data;
    wire.decode(data.words);
    return data;
  }
  static __device__ __forceinline__ void taken(std::byte*) {}
};

}  // namespace onehop::cuda
