// SPDX-License-Identifier: Apache-2.0
// Lamport buffers (onehop/device/wire/lamport.cuh) for push.cuh. The NaN that replaces a word of all
// ones is the format's usual NaN, which every NaN result is anyway (onehop/device/element.cuh).
#pragma once

#include <type_traits>

#include "onehop/device/wire/lamport.cuh"

#include "backend/cuda/packet.cuh"

namespace onehop::cuda {

template <class E>
struct Lamport {
  static constexpr int kWidth = 16;
  static constexpr int kStride = 16;
  static constexpr bool kScrubs = false;
  static constexpr bool kEscapes = false;
  using Data = Packet<kWidth>;
  using Wire = device::LamportWire<std::remove_const_t<decltype(E::kNanWord)>, kWidth>;

  __device__ __forceinline__ explicit Lamport(std::uint64_t) {}

  static __device__ __forceinline__ Wire wire(const Data& data) {
    return Wire::encode(data.words, E::kNanWord);
  }
  static __device__ __forceinline__ void send(std::byte* to, const Wire& wire) { wire.send(to); }
  static __device__ __forceinline__ Wire peek(const std::byte* from) { return Wire::poll(from); }
  static __device__ __forceinline__ bool arrived(const Wire& wire) { return wire.arrived(); }
  static __device__ __forceinline__ Data data(const Wire& wire) {
    Data data;
    wire.decode(data.words);
    return data;
  }
  static __device__ __forceinline__ void taken(std::byte* at) { Wire::clear(at); }
};

}  // namespace onehop::cuda
