// SPDX-License-Identifier: Apache-2.0
// LL with the flags packed: 7 words of data, of 8 bytes each, travel as 8 words, each of which has its flag
// in the topmost byte. The last word holds the bytes that the flags displaced. These 8 words are a unit.
// The aim is that of NCCL's LL128: 8/7 of the bytes instead of twice as many.
//
// A word of 8 bytes arrives whole, so a receiver that sees all flags of a unit has its data. As with LL
// (onehop/device/wire/ll.cuh), a single one-way trip suffices, without a fence or barrier. A flag is set or
// clear. The receiver takes a unit and stores zeros again, for the next message in this slot.
#pragma once

#include "onehop/device/wire/words.cuh"

#include "backend/cuda/packet.cuh"

namespace onehop::cuda {

/// A unit's data, in the registers of one lane. A warp moves 32 units at a time.
struct LLPacked {
  static constexpr int kWords = 7;

  Packet<8> words[kWords];

  struct Wire {
    Packet<8> words[kWords + 1];
  };

  [[nodiscard]] __device__ __forceinline__ Wire wire() const {
    Wire wire;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      wire.words[i].words[0] = words[i].words[0];
      wire.words[i].words[1] = with_flag(words[i].words[1]);
    }
    // The bytes that the flags displaced.
    const auto top = [&](int i) { return words[i].words[1]; };
    constexpr unsigned kTopOfBoth = 0x73;  // byte 3 of the first, then byte 3 of the second
    const std::uint32_t pair01 = __byte_perm(top(0), top(1), kTopOfBoth);
    const std::uint32_t pair23 = __byte_perm(top(2), top(3), kTopOfBoth);
    const std::uint32_t pair45 = __byte_perm(top(4), top(5), kTopOfBoth);
    constexpr unsigned kLowHalves = 0x5410;
    wire.words[kWords].words[0] = __byte_perm(pair01, pair23, kLowHalves);
    wire.words[kWords].words[1] = with_flag(__byte_perm(pair45, top(6) >> 24, kLowHalves));
    return wire;
  }
  [[nodiscard]] static __device__ __forceinline__ LLPacked of(const Wire& wire) {
    LLPacked packed;
    const Packet<8>& last = wire.words[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      packed.words[i].words[0] = wire.words[i].words[0];
      // Bytes 0 to 2 of the word, then byte i of the last one.
      const unsigned select = 0x0210 | static_cast<unsigned>(4 + i % 4) << 12;
      packed.words[i].words[1] = __byte_perm(wire.words[i].words[1], last.words[i / 4], select);
    }
    return packed;
  }
  [[nodiscard]] static __device__ __forceinline__ bool arrived(const Wire& wire) {
    std::uint32_t flags = kFlag;
#pragma unroll
    for (const Packet<8>& word : wire.words) flags &= word.words[1];
    return flags != 0;
  }

  /// `slot`: of the warp's 32 units. Each store or load of a warp covers 512 contiguous bytes.
  /// relaxed.sys: each word pairs by itself with its load in peek(); it orders nothing else.
  static __device__ __forceinline__ void send(std::byte* slot, unsigned lane, const Wire& wire) {
#pragma unroll
    for (int i = 0; i < kWords + 1; i += 2) {
      device::send_words<std::uint64_t, 2>(slot + place(lane, i),
                                           {number(wire.words[i]), number(wire.words[i + 1])});
    }
  }
  [[nodiscard]] static __device__ __forceinline__ Wire peek(const std::byte* slot, unsigned lane) {
    Wire wire;
#pragma unroll
    for (int i = 0; i < kWords + 1; i += 2) {
      std::uint64_t two[2];
      device::poll_words(slot + place(lane, i), two);
      wire.words[i] = packet(two[0]);
      wire.words[i + 1] = packet(two[1]);
    }
    return wire;
  }
  /// Plain stores: the peer writes here again only when it knows that this kernel has ended.
  static __device__ __forceinline__ void clear(std::byte* slot, unsigned lane) {
#pragma unroll
    for (int i = 0; i < kWords + 1; i += 2) device::clear_bytes<16>(slot + place(lane, i));
  }

 private:
  static constexpr std::uint32_t kFlag = 1u << 24;

  [[nodiscard]] static __device__ __forceinline__ std::uint32_t with_flag(std::uint32_t word) {
    return (word & 0x00ffffff) | kFlag;
  }
  [[nodiscard]] static __device__ __forceinline__ std::size_t place(unsigned lane, int word) {
    return static_cast<unsigned>(word / 2) * std::size_t{512} + lane * std::size_t{16};
  }
  [[nodiscard]] static __device__ __forceinline__ std::uint64_t number(const Packet<8>& word) {
    return word.words[0] | static_cast<std::uint64_t>(word.words[1]) << 32;
  }
  [[nodiscard]] static __device__ __forceinline__ Packet<8> packet(std::uint64_t number) {
    return {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32)};
  }
};

}  // namespace onehop::cuda
