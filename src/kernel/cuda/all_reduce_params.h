// What the host tells the all-reduce kernels, and how a rank's device segment is laid out. Plain data, for
// both compilers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onehop/device/view.h"

namespace onehop::cuda {

/// Most blocks a collective kernel has: all of them must be resident while they wait for the peers' blocks.
inline constexpr int kMaxBlocks = 128;
/// Data bytes of one rank's slot for the flag-in-data protocol (one_shot.cuh); twice that in memory.
inline constexpr std::size_t kPacketSlotBytes = 256 << 10;
/// Every this many epochs a one-shot rewrites its whole slot, so that no flag in it is ever 2^32 epochs old.
inline constexpr std::uint32_t kScrubPeriod = 1u << 30;

/// A rank's own counters, in its segment; no peer touches them.
struct Control {
  std::uint64_t epoch;     ///< of the last pass of the last call that started; grows by one per pass
  std::uint32_t arrivals;  ///< blocks of the running call that know the epoch
  std::uint32_t failed;    ///< DeviceGuard::failed
};

/// Start of a rank's device segment. `flags[phase][block][src]` is raised to an epoch by that block of src.
struct SegmentHead {
  Control control;
  std::uint8_t unused[256 - sizeof(Control)];
  std::uint64_t flags[2][kMaxBlocks][kMaxDevices];
};

/// Where things lie behind the head, for a group of `size` ranks.
struct SegmentLayout {
  int size = 0;
  std::size_t piece_bytes = 0;  ///< largest piece of a two-shot pass
  std::size_t mail_bytes = 0;   ///< largest message of a two-shot over mailboxes

  /// `staging`: what a rank can stage at a time.
  static constexpr SegmentLayout of(int size, std::size_t staging) {
    const auto ranks = static_cast<std::size_t>(size);
    // Two parities of a slot per source and one per owner.
    return {size, staging / (4 * ranks) / 512 * 512, staging / (512 * ranks) * (512 * ranks)};
  }
  static constexpr std::size_t packets() { return 64 << 10; }
  /// [parity][src] slots of packets.
  [[nodiscard]] constexpr std::size_t packet_slot(unsigned parity, int src) const {
    return packets() +
           (parity * static_cast<std::size_t>(size) + static_cast<std::size_t>(src)) * 2 * kPacketSlotBytes;
  }
  /// [parity][phase][rank] slots of pieces: phase 0 by source, phase 1 by owner.
  [[nodiscard]] constexpr std::size_t piece_slot(unsigned parity, unsigned phase, int rank) const {
    return packet_slot(2, 0) + ((std::size_t{parity} * 2 + phase) * static_cast<std::size_t>(size) +
                                static_cast<std::size_t>(rank)) *
                                   piece_bytes;
  }
  /// Mailboxes: per parity, one region that one-shot cuts into a slot per source, two-shot into two phases of
  /// a slot per rank.
  [[nodiscard]] constexpr std::size_t mail() const { return piece_slot(2, 0, 0); }
  [[nodiscard]] constexpr std::size_t mail_slot_bytes() const {
    return 2 * mail_bytes / static_cast<std::size_t>(size);
  }
  [[nodiscard]] constexpr std::size_t mail_slot(unsigned parity, int src) const {
    return mail() + std::size_t{parity} * 2 * mail_bytes + static_cast<std::size_t>(src) * mail_slot_bytes();
  }
  [[nodiscard]] constexpr std::size_t mail_piece_slot(unsigned parity, unsigned phase, int rank) const {
    return mail() + (std::size_t{parity} * 2 + phase) * mail_bytes +
           static_cast<std::size_t>(rank) * (mail_bytes / static_cast<std::size_t>(size));
  }
  [[nodiscard]] constexpr std::size_t bytes() const { return mail() + 4 * mail_bytes; }
};
static_assert(sizeof(SegmentHead) <= SegmentLayout::packets());

struct AllReduceParams {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;
  int rank = 0;
  int size = 0;
  bool aligned = false;      ///< in and out to 16 bytes
  std::uint32_t passes = 1;  ///< each covers pass_bytes, the last one the rest
  std::size_t pass_bytes = 0;
  SegmentLayout layout;
  std::byte* segments[kMaxDevices] = {};
  DeviceGuard guard;
};

}  // namespace onehop::cuda
