// SPDX-License-Identifier: Apache-2.0
// Messages of pairs.cuh that are sent whole: by packets or bundles.
#pragma once

#include "kernel/cuda/bundle.cuh"
#include "kernel/cuda/call.cuh"
#include "kernel/cuda/flagged.cuh"

namespace onehop::cuda {

/// A message by packets or bundles. All threads of the row's blocks take part.
class PairMessage {
 public:
  __device__ __forceinline__ PairMessage(const PairParams& p, const PairParams::Pair& pair, int peer)
      : p_(p),
        pair_(pair),
        peer_(peer),
        first_(blockIdx.x * blockDim.x + threadIdx.x),
        stride_(gridDim.x * blockDim.x),
        sends_(at_once(pair.to)),
        receives_(at_once(pair.from)) {}

  [[nodiscard]] __device__ __forceinline__ bool idle() const { return !sends_ && !receives_; }

  /// Loads the data first, since that does not depend on the message's number.
  __device__ __forceinline__ bool send() {
    const bool bundled = pair_.to.shape.bundles;
    Packet<8> packet{};
    Bundle bundle{};
    if (sends_ && bundled) {
      if (data_at(warp()) < pair_.to.bytes) bundle = load_bundle(warp());
    } else if (sends_ && place(first_) < pair_.to.bytes) {
      packet = load_bytes<8>(pair_.to.data, place(first_), pair_.to.bytes);
    }
    std::uint64_t taken = 0;
    if (sends_) {
      sent_ = load(pair_.to.messages) + 1;
      taken = device::load_relaxed(pair_.to.taken);
    }
    if (receives_) received_ = load(pair_.from.messages) + 1;
    // Relaxed: pairs with the loads of `taken` here, on the peer. The slots it frees were read and cleared by
    // kernels that have ended.
    if (receives_ && first_ == 0) device::store_relaxed(pair_.from.taken, received_ - 1);
    if (!sends_) return true;
    if (taken + 2 < sent_ && !device::wait_until<kPollsOfMany>(p_.guard, peer_, p_.phase, [&] {
          return device::load_relaxed(pair_.to.taken) + 2 >= sent_;
        })) {
      return false;
    }
    if (bundled) {
      send_bundles(bundle);
    } else {
      send_packets(packet);
    }
    return true;
  }

  __device__ __forceinline__ void receive() const {
    if (!receives_) return;
    if (pair_.from.shape.bundles) {
      receive_bundles();
    } else {
      receive_packets();
    }
  }

  /// Called by all threads once they have read the numbers: the last block of the row advances them.
  __device__ __forceinline__ void settle() const {
    __syncthreads();
    if (threadIdx.x != blockDim.x - 1) return;
    if (gridDim.x > 1) {
      if (atomicAdd(pair_.arrivals, 1u) != gridDim.x - 1) return;
      *pair_.arrivals = 0;
    }
    if (sends_) *pair_.to.messages = sent_;
    if (receives_) *pair_.from.messages = received_;
  }

 private:
  using Slot = Flagged<Native<std::uint8_t>>;

  [[nodiscard]] static __device__ __forceinline__ bool at_once(const PairEnd& end) {
    return end.bytes != 0 && end.shape.streams == 0;
  }
  [[nodiscard]] static __device__ __forceinline__ std::uint64_t load(const std::uint64_t* count) {
    std::uint64_t value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(count) : "memory");
    return value;
  }

  // Packets.

  __device__ __forceinline__ void send_packets(const Packet<8>& first) const {
    const Slot slot(sent_);
    std::byte* const to = pair_.to.packets + packet_side(sent_);
    if (place(first_) < pair_.to.bytes) Slot::send(to + offset(first_), slot.wire(first));
    for (unsigned i = first_ + stride_; place(i) < pair_.to.bytes; i += stride_) {
      Slot::send(to + offset(i), slot.wire(load_bytes<8>(pair_.to.data, place(i), pair_.to.bytes)));
    }
    if (static_cast<std::uint32_t>(sent_) % kScrubPeriod < 2) scrub(sent_, to, pair_.to.bytes);
  }
  __device__ __forceinline__ void receive_packets() const {
    const Slot slot(received_);
    const std::byte* const from = pair_.from.packets + packet_side(received_);
    for (unsigned i = first_; place(i) < pair_.from.bytes; i += stride_) {
      Slot::Wire wire;
      if (!device::wait_until<kPollsOfMany>(p_.guard, peer_, p_.phase, [&] {
            wire = Slot::peek(from + offset(i));
            return slot.arrived(wire);
          })) {
        return;
      }
      store_bytes<8>(pair_.from.data, place(i), pair_.from.bytes, Slot::data(wire));
    }
  }
  [[nodiscard]] static __device__ __forceinline__ std::size_t place(unsigned i) { return std::size_t{i} * 8; }
  [[nodiscard]] static __device__ __forceinline__ std::size_t offset(unsigned i) {
    return std::size_t{i} * Slot::kStride;
  }
  [[nodiscard]] __device__ __forceinline__ std::size_t packet_side(std::uint64_t number) const {
    return (number & 1) != 0 ? p_.packet_parity : 0;
  }
  /// Stores this number in all flags of the slot behind the message, so that no flag is ever 2^32 messages
  /// old.
  static __device__ __noinline__ void scrub(std::uint64_t number, std::byte* to, std::size_t bytes) {
    const Slot slot(number);
    const unsigned stride = gridDim.x * blockDim.x;
    unsigned i = static_cast<unsigned>((bytes + 7) / 8) + blockIdx.x * blockDim.x + threadIdx.x;
    for (; place(i) < kPairPacketBytes; i += stride) {
      Slot::send(to + offset(i), slot.wire({}));
    }
  }

  // Bundles. A warp handles 32 of them.

  __device__ __forceinline__ void send_bundles(Bundle bundle) const {
    std::byte* const to = pair_.to.bundles + bundle_side(sent_);
    for (unsigned i = warp(); data_at(i) < pair_.to.bytes; i += warps()) {
      if (i != warp()) bundle = load_bundle(i);
      Bundle::send(to + slot_at(i), lane(), bundle.wire());
    }
  }
  __device__ __forceinline__ void receive_bundles() const {
    std::byte* const from = pair_.from.bundles + bundle_side(received_);
    for (unsigned i = warp(); data_at(i) < pair_.from.bytes; i += warps()) {
      Bundle::Wire wire;
      if (!device::wait_until<kPollsOfMany>(p_.guard, peer_, p_.phase, [&] {
            wire = Bundle::peek(from + slot_at(i), lane());
            return Bundle::arrived(wire);
          })) {
        return;
      }
      Bundle::clear(from + slot_at(i), lane());
      store_bundle(i, Bundle::of(wire));
    }
  }
  /// Word w of all lanes together is a contiguous run of 256 bytes.
  [[nodiscard]] __device__ __forceinline__ std::size_t word_at(unsigned i, int w) const {
    return data_at(i) + static_cast<unsigned>(w) * std::size_t{256} + lane() * std::size_t{8};
  }
  [[nodiscard]] __device__ __forceinline__ bool whole(const PairEnd& end, unsigned i) const {
    return reinterpret_cast<std::uintptr_t>(end.data) % 8 == 0 && data_at(i + 1) <= end.bytes;
  }
  [[nodiscard]] __device__ __forceinline__ Bundle load_bundle(unsigned i) const {
    Bundle bundle{};
    if (whole(pair_.to, i)) {
#pragma unroll
      for (int w = 0; w < Bundle::kWords; ++w) bundle.words[w] = load_whole<8>(pair_.to.data + word_at(i, w));
    } else {
#pragma unroll
      for (int w = 0; w < Bundle::kWords; ++w) {
        const std::size_t at = word_at(i, w);
        if (at < pair_.to.bytes) bundle.words[w] = load_bytes<8>(pair_.to.data, at, pair_.to.bytes);
      }
    }
    return bundle;
  }
  __device__ __forceinline__ void store_bundle(unsigned i, const Bundle& bundle) const {
    if (whole(pair_.from, i)) {
#pragma unroll
      for (int w = 0; w < Bundle::kWords; ++w) store_whole(pair_.from.data + word_at(i, w), bundle.words[w]);
      return;
    }
#pragma unroll
    for (int w = 0; w < Bundle::kWords; ++w) {
      const std::size_t at = word_at(i, w);
      if (at < pair_.from.bytes) store_bytes<8>(pair_.from.data, at, pair_.from.bytes, bundle.words[w]);
    }
  }
  [[nodiscard]] static __device__ __forceinline__ std::size_t data_at(unsigned i) {
    return std::size_t{i} * kBundlesDataBytes;
  }
  [[nodiscard]] static __device__ __forceinline__ std::size_t slot_at(unsigned i) {
    return std::size_t{i} * kBundlesSlotBytes;
  }
  [[nodiscard]] __device__ __forceinline__ std::size_t bundle_side(std::uint64_t number) const {
    return (number & 1) != 0 ? p_.bundle_parity : 0;
  }
  [[nodiscard]] __device__ __forceinline__ unsigned warp() const {
    return first_ / 32;
  }
  [[nodiscard]] __device__ __forceinline__ unsigned warps() const {
    return stride_ / 32;
  }
  [[nodiscard]] __device__ __forceinline__ unsigned lane() const {
    return first_ % 32;
  }

  const PairParams& p_;
  const PairParams::Pair& pair_;
  const int peer_;
  const unsigned first_;
  const unsigned stride_;
  const bool sends_;
  const bool receives_;
  std::uint64_t sent_ = 0;      ///< number of the message sent in this launch
  std::uint64_t received_ = 0;  ///< number of the message received in this launch
};

}  // namespace onehop::cuda
