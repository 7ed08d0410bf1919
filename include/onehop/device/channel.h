// SPDX-License-Identifier: Apache-2.0
// Channels: regions of symmetric memory through which kernels pass small messages without fences or barriers.
// The data words themselves show whether they have arrived. The host creates channels as plain data; pass
// them by value, as `const __grid_constant__`. Free of CUDA headers; the device functions are in channel.cuh.
//
//   constexpr std::size_t kBytes = 64 << 10;  // from each rank to each in one kernel, at most
//   const std::size_t needed = onehop::LLChannel::bytes(group.size(), kBytes);
//   const onehop::SymmetricBuffer buffer = group.allocate(needed);
//   const auto channel = onehop::LLChannel::make(buffer.device_view(), 0, kBytes);
//
// All ranks create the same channels. A channel must start in memory that no kernel has written to since
// Group::allocate, which zeroes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "onehop/device/epoch.h"
#include "onehop/device/view.h"
#include "onehop/error.h"

namespace onehop {

/// Addresses of a channel's words. The region begins with the count of the channel's uses. A slot holds the
/// data that one rank sends to another in one use. Even and odd uses have separate slots (double buffering).
struct ChannelSlots {
  int rank = 0;
  int size = 0;
  std::uint32_t words = 0;              ///< data words of 4 bytes in a slot
  EpochCounter* uses = nullptr;         ///< the kernels that have used the channel on this rank
  std::byte* inbox = nullptr;           ///< local slots of even uses, by source
  std::byte* outbox[kMaxDevices] = {};  ///< by destination: this rank's slot of even uses there
  std::size_t slot_bytes = 0;
  std::size_t parity_bytes = 0;  ///< distance from the slots of even uses to those of odd uses
  DeviceGuard guard;

  static constexpr std::size_t kHeadBytes = 128;
  static constexpr std::size_t kAlignment = 16;

  /// `widening`: bytes in memory per byte of data.
  static constexpr std::size_t region(int size, std::size_t bytes, std::size_t widening) {
    return kHeadBytes + 2 * static_cast<std::size_t>(size) * slot(bytes, widening);
  }
  static ChannelSlots make(const DeviceView& view, std::size_t offset, std::size_t bytes,
                           std::size_t widening) {
    const std::size_t needed = region(view.size, bytes, widening);
    if (offset % kAlignment != 0 || offset > view.bytes || needed > view.bytes - offset) {
      throw Error(ErrorCode::invalid_argument,
                  "a channel of " + std::to_string(needed) + " bytes at offset " + std::to_string(offset) +
                      " of a buffer of " + std::to_string(view.bytes) +
                      ": it must fit, and begin at a multiple of " + std::to_string(kAlignment));
    }
    if (bytes / 4 > kMostWords) {
      throw Error(ErrorCode::invalid_argument,
                  "a channel for " + std::to_string(bytes) +
                      " bytes from rank to rank: at most 16 GiB - 16 are counted");
    }
    ChannelSlots slots;
    slots.rank = view.rank;
    slots.size = view.size;
    slots.slot_bytes = slot(bytes, widening);
    slots.parity_bytes = static_cast<std::size_t>(view.size) * slots.slot_bytes;
    slots.words = static_cast<std::uint32_t>(slots.slot_bytes / widening / 4);
    slots.uses = reinterpret_cast<EpochCounter*>(view.peers[view.rank] + offset);
    slots.inbox = view.peers[view.rank] + offset + kHeadBytes;
    for (int r = 0; r < view.size; ++r) {
      slots.outbox[r] =
          view.peers[r] + offset + kHeadBytes + static_cast<std::size_t>(view.rank) * slots.slot_bytes;
    }
    slots.guard = view.guard;
    return slots;
  }

 private:
  static constexpr std::size_t kMostWords = 0xfffffffc;
  static constexpr std::size_t slot(std::size_t bytes, std::size_t widening) {
    return (bytes + 15) / 16 * 16 * widening;
  }
};

/// Carries any bits as LL packets (wire/ll.cuh): every 4 bytes travel with the number of the use as a flag.
/// That doubles the memory and the bytes on the link. Fastest for up to some ten KiB. Any number of threads
/// may read a word.
struct LLChannel {
  static constexpr std::size_t kWidening = 2;  ///< bytes in memory per byte of data

  ChannelSlots slots;

  /// Bytes of buffer needed for at most `bytes` bytes from each rank to each other rank in one use.
  static constexpr std::size_t bytes(int size, std::size_t bytes) {
    return ChannelSlots::region(size, bytes, kWidening);
  }
  /// Creates a channel at byte `offset` of every rank's part; `offset` is a multiple of 16.
  /// Error{invalid_argument} if it does not fit.
  static LLChannel make(const DeviceView& view, std::size_t offset, std::size_t bytes) {
    return {ChannelSlots::make(view, offset, bytes, kWidening)};
  }
};

/// Carries floating-point numbers of up to 4 bytes at the full rate of the links, in Lamport buffers
/// (wire/lamport.cuh). A word of all ones is a NaN in every such format; it arrives as another NaN,
/// 0x7fff7fff. Faster than LL packets from some ten KiB on. Every word that is put must be taken in the same
/// use, exactly once.
struct LamportChannel {
  static constexpr std::size_t kWidening = 1;

  ChannelSlots slots;

  static constexpr std::size_t bytes(int size, std::size_t bytes) {
    return ChannelSlots::region(size, bytes, kWidening);
  }
  static LamportChannel make(const DeviceView& view, std::size_t offset, std::size_t bytes) {
    return {ChannelSlots::make(view, offset, bytes, kWidening)};
  }
};

}  // namespace onehop
