// SPDX-License-Identifier: Apache-2.0
// Messages of exchange.cuh that are sent whole, by LL packets or packed LL.
#pragma once

#include "onehop/device/wire/ll.cuh"

#include "backend/cuda/algorithms/point_to_point/point_to_point.h"
#include "backend/cuda/sync/call.cuh"
#include "backend/cuda/wire/ll_packed.cuh"

namespace onehop::cuda {

/// A message by LL packets or packed LL. All threads of the row's blocks take part.
class MessageChannel {
 public:
  __device__ __forceinline__ MessageChannel(const ChannelCall& p, const ChannelPair& pair, int peer)
      : p_(p),
        pair_(pair),
        peer_(peer),
        first_(blockIdx.x * blockDim.x + threadIdx.x),
        stride_(gridDim.x * blockDim.x),
        sends_(at_once(pair.to)),
        receives_(at_once(pair.from)) {}

  [[nodiscard]] __device__ __forceinline__ bool idle() const { return !sends_ && !receives_; }

  /// Loads the data first, since that does not depend on the message's number. Values that only receive() needs are
  /// used after sending, so that sending does not wait for their loads. If the wait for the peer fails, this sends
  /// nothing, and receive() does not wait.
  __device__ __forceinline__ void send() {
    const bool is_packed = pair_.to.shape.route == Route::ll_packed;
    Packet<8> packet{};
    LLPacked packed{};
    if (sends_ && is_packed) {
      if (data_at(warp()) < pair_.to.bytes) packed = load_packed(warp());
    } else if (sends_ && place(first_) < pair_.to.bytes) {
      packet = load_bytes<8>(pair_.to.data, place(first_), pair_.to.bytes);
    }
    std::uint64_t taken = 0;
    if (sends_) {
      sent_ = device::read_epoch(*pair_.to.messages);
      taken = device::load_relaxed(pair_.to.taken);
    }
    std::uint64_t shares = 0;
    std::uint32_t failed = 0;
    if (receives_) {
      shares = device::read_shares(*pair_.from.messages);
      failed = device::load_relaxed(p_.guard.failed);  // as has_failed(), which would wait for it here
    }
    bool has_slot = true;
    if (sends_) {
      if (taken + 2 < sent_) has_slot = await_slot(shares);
      if (has_slot && is_packed) send_packed(packed);
      if (has_slot && !is_packed) send_packets(packet);
    }
    received_ = device::epoch_of(shares);
    failed_ = !has_slot || failed != 0;
    report();
  }

  __device__ __forceinline__ void receive() const {
    if (!receives_) return;
    if (pair_.from.shape.route == Route::ll_packed) {
      receive_packed();
    } else {
      receive_packets();
    }
  }

  /// Called by all threads once they have read the numbers.
  __device__ __forceinline__ void settle() const {
    __syncthreads();
    // The last thread counts what the row sends, the one before what it receives.
    const unsigned thread = blockDim.x - 1 - threadIdx.x;
    const bool to = thread == 0;
    if (thread > 1 || !(to ? sends_ : receives_)) return;
    device::add_share(*(to ? pair_.to : pair_.from).messages, to ? sent_ : received_);
  }

 private:
  using Wire = device::LLWire<8>;
  static_assert(kPackedDataBytes == 32 * 8 * LLPacked::kWords &&
                kPackedSlotBytes == 32 * 8 * (LLPacked::kWords + 1));

  [[nodiscard]] static __device__ __forceinline__ bool at_once(const ChannelEnd& end) {
    return end.bytes != 0 && end.shape.route != Route::ring;
  }

  /// Tells the peer that all earlier messages have been taken.
  /// Relaxed: pairs with the loads of `taken` in send() and await_slot(), on the peer. The slots it frees were read and
  /// cleared by kernels that have ended.
  __device__ __forceinline__ void report() const {
    if (receives_ && first_ == 0) device::store_relaxed(pair_.from.taken, received_ - 1);
  }
  /// Waits until the peer has taken the message before the last one. Reports first, because the peer may be waiting here
  /// for that report.
  [[nodiscard]] __device__ __forceinline__ bool await_slot(std::uint64_t shares) {
    received_ = device::epoch_of(shares);
    report();
    return device::wait_until(p_.guard, peer_, p_.phase,
                              [&] { return device::load_relaxed(pair_.to.taken) + 2 >= sent_; });
  }

  // LL packets.

  __device__ __forceinline__ void send_packets(const Packet<8>& first) const {
    const auto flag = static_cast<std::uint32_t>(sent_);
    std::byte* const to = pair_.to.packets + ll_side(sent_);
    if (place(first_) < pair_.to.bytes) Wire::encode(first.words, flag).send(to + offset(first_));
    for (unsigned i = first_ + stride_; place(i) < pair_.to.bytes; i += stride_) {
      const Packet<8> packet = load_bytes<8>(pair_.to.data, place(i), pair_.to.bytes);
      Wire::encode(packet.words, flag).send(to + offset(i));
    }
    if (device::scrub_due(sent_)) scrub(flag, to, pair_.to.bytes);
  }
  __device__ __forceinline__ void receive_packets() const {
    const auto flag = static_cast<std::uint32_t>(received_);
    const std::byte* const from = pair_.from.packets + ll_side(received_);
    for (unsigned i = first_; place(i) < pair_.from.bytes; i += stride_) {
      Wire wire;
      if (failed_ || !device::wait_until(p_.guard, peer_, p_.phase, [&] {
            wire = Wire::poll(from + offset(i));
            return wire.arrived(flag);
          })) {
        return poison_packets(pair_.from, i, stride_);
      }
      Packet<8> packet;
      wire.decode(packet.words);
      store_bytes<8>(pair_.from.data, place(i), pair_.from.bytes, packet);
    }
  }
  /// The call has failed: fills this thread's packets from i on with NaN (sync/call.cuh). Static, because a call would
  /// force the members of this object into memory.
  static __device__ __noinline__ void poison_packets(const ChannelEnd& from, unsigned i, unsigned stride) {
    if (!from.poison) return;
    for (; place(i) < from.bytes; i += stride) store_nan<8>(from.data, place(i), from.bytes);
  }
  [[nodiscard]] static __device__ __forceinline__ std::size_t place(unsigned i) { return std::size_t{i} * 8; }
  [[nodiscard]] static __device__ __forceinline__ std::size_t offset(unsigned i) {
    return Wire::kWidening * place(i);
  }
  [[nodiscard]] __device__ __forceinline__ std::size_t ll_side(std::uint64_t number) const {
    return (number & 1) != 0 ? p_.ll_parity : 0;
  }
  /// Stores this number in all flags of the slot behind the message.
  static __device__ __noinline__ void scrub(std::uint32_t flag, std::byte* to, std::size_t bytes) {
    device::scrub(to, (bytes + 7) / 8 * 2, kMaxLLBytes / 4, flag);
  }

  // Packed LL. A warp handles 32 units.

  __device__ __forceinline__ void send_packed(LLPacked packed) const {
    std::byte* const to = pair_.to.packed + packed_side(sent_);
    for (unsigned i = warp(); data_at(i) < pair_.to.bytes; i += warps()) {
      if (i != warp()) packed = load_packed(i);
      LLPacked::send(to + slot_at(i), lane(), packed.wire());
    }
  }
  __device__ __forceinline__ void receive_packed() const {
    std::byte* const from = pair_.from.packed + packed_side(received_);
    for (unsigned i = warp(); data_at(i) < pair_.from.bytes; i += warps()) {
      LLPacked::Wire wire;
      if (failed_ || !device::wait_until(p_.guard, peer_, p_.phase, [&] {
            wire = LLPacked::peek(from + slot_at(i), lane());
            return LLPacked::arrived(wire);
          })) {
        return poison_packed(pair_.from, i, warps(), lane());
      }
      LLPacked::clear(from + slot_at(i), lane());
      store_packed(i, LLPacked::of(wire));
    }
  }
  /// The same for this lane's words of the units.
  static __device__ __noinline__ void poison_packed(const ChannelEnd& from, unsigned i, unsigned stride,
                                                    unsigned lane) {
    if (!from.poison) return;
    for (; data_at(i) < from.bytes; i += stride) {
      for (int w = 0; w < LLPacked::kWords; ++w) store_nan<8>(from.data, word_at(i, w, lane), from.bytes);
    }
  }
  /// Word w of all lanes together is a contiguous run of 256 bytes.
  [[nodiscard]] __device__ __forceinline__ std::size_t word_at(unsigned i, int w) const {
    return word_at(i, w, lane());
  }
  [[nodiscard]] static __device__ __forceinline__ std::size_t word_at(unsigned i, int w, unsigned lane) {
    return data_at(i) + static_cast<unsigned>(w) * std::size_t{256} + lane * std::size_t{8};
  }
  [[nodiscard]] __device__ __forceinline__ bool whole(const ChannelEnd& end, unsigned i) const {
    return reinterpret_cast<std::uintptr_t>(end.data) % 8 == 0 && data_at(i + 1) <= end.bytes;
  }
  [[nodiscard]] __device__ __forceinline__ LLPacked load_packed(unsigned i) const {
    LLPacked packed{};
    if (whole(pair_.to, i)) {
#pragma unroll
      for (int w = 0; w < LLPacked::kWords; ++w)
        packed.words[w] = load_whole<8>(pair_.to.data + word_at(i, w));
    } else {
#pragma unroll
      for (int w = 0; w < LLPacked::kWords; ++w) {
        const std::size_t at = word_at(i, w);
        if (at < pair_.to.bytes) packed.words[w] = load_bytes<8>(pair_.to.data, at, pair_.to.bytes);
      }
    }
    return packed;
  }
  __device__ __forceinline__ void store_packed(unsigned i, const LLPacked& packed) const {
    if (whole(pair_.from, i)) {
#pragma unroll
      for (int w = 0; w < LLPacked::kWords; ++w)
        store_whole(pair_.from.data + word_at(i, w), packed.words[w]);
      return;
    }
#pragma unroll
    for (int w = 0; w < LLPacked::kWords; ++w) {
      const std::size_t at = word_at(i, w);
      if (at < pair_.from.bytes) store_bytes<8>(pair_.from.data, at, pair_.from.bytes, packed.words[w]);
    }
  }
  [[nodiscard]] static __device__ __forceinline__ std::size_t data_at(unsigned i) {
    return std::size_t{i} * kPackedDataBytes;
  }
  [[nodiscard]] static __device__ __forceinline__ std::size_t slot_at(unsigned i) {
    return std::size_t{i} * kPackedSlotBytes;
  }
  [[nodiscard]] __device__ __forceinline__ std::size_t packed_side(std::uint64_t number) const {
    return (number & 1) != 0 ? p_.packed_parity : 0;
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

  const ChannelCall& p_;
  const ChannelPair& pair_;
  const int peer_;
  const unsigned first_;
  const unsigned stride_;
  const bool sends_;
  const bool receives_;
  std::uint64_t sent_ = 0;      ///< number of the message sent in this launch
  std::uint64_t received_ = 0;  ///< number of the message received in this launch
  bool failed_ = false;         ///< a wait of this launch or an earlier one
};

}  // namespace onehop::cuda
