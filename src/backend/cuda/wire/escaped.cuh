// SPDX-License-Identifier: Apache-2.0
// Lamport buffers for data of which every bit pattern is a value, such as integers. As in
// onehop/device/wire/lamport.cuh, zero means empty. Words are XORed with kEscapeKey. kEscapeKey itself, a value that real
// data rarely contains, would look empty; it is sent as kEscape. One other word is encoded as kEscape, too. So a packet
// that contains kEscape is followed by a byte that says which of its words were kEscapeKey. The receiver waits for that
// byte only if it finds kEscape.
#pragma once

#include "onehop/device/wire/words.cuh"

#include "backend/cuda/algorithms/streaming/streaming.h"
#include "backend/cuda/packet.cuh"

namespace onehop::cuda {

struct Escaped {
  static constexpr bool kEscapes = true;
  static constexpr int kWidth = 16;
  using Data = Packet<kWidth>;
  static constexpr std::uint32_t kEscape = 1;
  /// Set in a packet's byte, which is 0 until it arrives. The lower bits say which words were escaped.
  static constexpr unsigned kArrived = 0x80;

  struct Wire {
    std::uint32_t at[Data::kWords];
  };

  static __device__ __forceinline__ Wire wire(const Data& data) {
    Wire wire;
#pragma unroll
    for (int i = 0; i < Data::kWords; ++i) {
      const std::uint32_t word = data.words[i] ^ kEscapeKey;
      wire.at[i] = word == 0 ? kEscape : word;
    }
    return wire;
  }
  static __device__ __forceinline__ void send(std::byte* to, const Wire& wire) {
    device::send_words(to, wire.at);
  }
  static __device__ __forceinline__ Wire peek(const std::byte* from) {
    Wire wire;
    device::poll_words(from, wire.at);
    return wire;
  }
  static __device__ __forceinline__ bool arrived(const Wire& wire) {
    bool all = true;
#pragma unroll
    for (const std::uint32_t word : wire.at) all = all && word != 0;
    return all;
  }
  static __device__ __forceinline__ Data data(const Wire& wire) {
    Data data;
#pragma unroll
    for (int i = 0; i < Data::kWords; ++i) data.words[i] = wire.at[i] ^ kEscapeKey;
    return data;
  }
  /// Plain stores, which pair as LamportWire::clear() does.
  static __device__ __forceinline__ void taken(std::byte* at) {
    device::clear_bytes<kWidth>(at);
  }

  /// Whether a byte follows.
  static __device__ __forceinline__ bool has_escape(const Wire& wire) {
    bool any = false;
#pragma unroll
    for (const std::uint32_t word : wire.at) any = any || word == kEscape;
    return any;
  }
  /// The byte that follows this packet.
  static __device__ __forceinline__ unsigned byte_of(const Data& data) {
    unsigned byte = kArrived;
#pragma unroll
    for (int i = 0; i < Data::kWords; ++i) byte |= data.words[i] == kEscapeKey ? 1u << i : 0;
    return byte;
  }
  /// Puts the escaped words in place.
  static __device__ __forceinline__ void restore(Wire& wire, unsigned byte) {
#pragma unroll
    for (int i = 0; i < Data::kWords; ++i) wire.at[i] = (byte >> i & 1) != 0 ? 0 : wire.at[i];
  }
  /// relaxed.sys: pairs with the load in peek_byte() on the receiver.
  static __device__ __forceinline__ void send_byte(std::byte* to, unsigned byte) {
    asm volatile("st.relaxed.sys.global.u8 [%0], %1;" ::"l"(to), "r"(byte) : "memory");
  }
  /// relaxed.sys: pairs with the store in send_byte().
  static __device__ __forceinline__ unsigned peek_byte(const std::byte* from) {
    unsigned byte;
    asm volatile("ld.relaxed.sys.global.u8 %0, [%1];" : "=r"(byte) : "l"(from) : "memory");
    return byte;
  }
  static __device__ __forceinline__ void taken_byte(std::byte* at) {
    asm volatile("st.global.u8 [%0], %1;" ::"l"(at), "r"(0) : "memory");
  }
};

}  // namespace onehop::cuda
