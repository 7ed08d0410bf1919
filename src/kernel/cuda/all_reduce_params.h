// What the host tells the all-reduce kernels, and how a rank's device segment is laid out. Plain data, for
// both compilers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "onehop/device/view.h"

namespace onehop::cuda {

/// Kernels for exactly `ranks` ranks exist where it pays; kMaxDevices stands for those that serve any number.
[[nodiscard]] constexpr int kernel_ranks(int ranks, bool sum) {
  return sum && (ranks == 2 || ranks == 4) ? ranks : kMaxDevices;
}
/// Most threads of a block. Two such blocks fit a multiprocessor at the same time (call.cuh), in the 128 or
/// 64 registers that this leaves each thread.
[[nodiscard]] constexpr int max_threads(int kernel_ranks) {
  return kernel_ranks == kMaxDevices ? 256 : 512;
}
/// Most blocks of a chunked call (chunked.cuh), and how many slots of each kind a block uses in turn. All
/// blocks of an H200; a ring of 4 is as quick as one of 8 for most sizes, and of the same memory
/// (bench/results/gpu-kernels.md).
inline constexpr unsigned kMaxChunkedBlocks = 132;
inline constexpr unsigned kRing = 4;
/// Warps of a chunked block by role; `signallers` for each of the two phases.
struct Crew {
  int senders;
  int adders;
  int copiers;
  int signallers;
  [[nodiscard]] constexpr int threads() const { return 32 * (senders + adders + copiers + 2 * signallers); }
};
[[nodiscard]] constexpr Crew crew(int kernel_ranks) {
  if (kernel_ranks == 2) return {.senders = 2, .adders = 4, .copiers = 2, .signallers = 4};
  if (kernel_ranks == 4) return {.senders = 3, .adders = 5, .copiers = 4, .signallers = 2};
  return {.senders = 2, .adders = 2, .copiers = 2, .signallers = 1};
}
static_assert(crew(2).threads() == max_threads(2) && crew(4).threads() == max_threads(4) &&
              crew(kMaxDevices).threads() == max_threads(kMaxDevices));
/// Data bytes of one rank's slot for the flag-in-data protocol (flagged.cuh); twice that in memory.
inline constexpr std::size_t kPacketSlotBytes = 256 << 10;
/// Every this many calls the whole slot is rewritten, so that no flag in it is ever 2^32 calls old.
inline constexpr std::uint32_t kScrubPeriod = 1u << 30;

/// A rank's count of the calls that used one family of slots, in its segment; no peer touches it.
struct Control {
  std::uint64_t epoch;     ///< of the last call that started; grows by one per call
  std::uint32_t arrivals;  ///< blocks of the running call that know the epoch
};

/// Start of a rank's device segment.
struct SegmentHead {
  Control packets;
  Control mail;
  Control rounds[2];     ///< of copies.cuh: adds, collects
  std::uint32_t failed;  ///< DeviceGuard::failed
  std::uint8_t unused[256 - 4 * sizeof(Control) - sizeof(std::uint32_t)];
  std::uint64_t round_flags[2][kMaxDevices];  ///< of copies.cuh, by source
  /// Of chunked.cuh: how many chunks each block has begun in all calls before this one; and flags, by phase,
  /// block, slot and source, which a peer raises to the number of a chunk.
  std::uint64_t chunks[kMaxChunkedBlocks];
  std::uint64_t flags[2][kMaxChunkedBlocks][kRing][kMaxDevices];
};

/// Where a protocol's slots lie in every segment: of parity p, phase f and rank r at
/// begin + p * parity + f * phase + r * rank. Chunked: p counts slots of the ring, kRing for each block.
struct Slots {
  std::size_t begin = 0;
  std::size_t parity = 0;
  std::size_t phase = 0;
  std::size_t rank = 0;
};

/// What lies where behind the head, for a group of `size` ranks.
struct SegmentLayout {
  std::size_t ranks = 0;
  std::size_t chunk_bytes = 0;  ///< largest chunk
  std::size_t mail_bytes = 0;   ///< largest message of a two-shot over mailboxes
  std::size_t round_bytes = 0;  ///< most of a piece that copy engines carry in a round; 0: they carry nothing

  /// `staging`: what a rank can stage at a time; `copies`: what it gives for copy engines.
  static constexpr SegmentLayout of(int size, std::size_t staging, std::size_t copies = 0) {
    const auto ranks = static_cast<std::size_t>(size);
    // Chunks that are no power of two are slower, by 7% with 7.5 KiB.
    const std::size_t chunk = std::bit_floor(staging / (ranks * 128 * kRing));
    return {ranks, chunk < 512 ? 512 : chunk, staging / (512 * ranks) * (512 * ranks),
            copies / (4 * ranks) / 512 * 512};
  }
  /// One phase: by source.
  [[nodiscard]] constexpr Slots packets() const {
    return {
        .begin = 128 << 10, .parity = ranks * 2 * kPacketSlotBytes, .phase = 0, .rank = 2 * kPacketSlotBytes};
  }
  /// Two phases: by source, by owner.
  [[nodiscard]] constexpr Slots chunks() const {
    const Slots before = packets();
    return {.begin = before.begin + 2 * before.parity,
            .parity = ranks * chunk_bytes,
            .phase = ranks * chunk_bytes * kMaxChunkedBlocks * kRing,
            .rank = chunk_bytes};
  }
  /// Mailboxes: one region per parity, which one-shot cuts into a slot per source, two-shot into two phases
  /// of a slot per rank.
  [[nodiscard]] constexpr Slots mail_one_shot() const {
    const Slots before = chunks();
    return {.begin = before.begin + 2 * before.phase,
            .parity = 2 * mail_bytes,
            .phase = 0,
            .rank = 2 * mail_bytes / ranks};
  }
  [[nodiscard]] constexpr Slots mail_two_shot() const {
    return {.begin = mail_one_shot().begin,
            .parity = 2 * mail_bytes,
            .phase = mail_bytes,
            .rank = mail_bytes / ranks};
  }
  /// Two phases: by source, by owner.
  [[nodiscard]] constexpr Slots copies() const {
    return {.begin = mail_one_shot().begin + 4 * mail_bytes,
            .parity = ranks * round_bytes,
            .phase = 2 * ranks * round_bytes,
            .rank = round_bytes};
  }
  [[nodiscard]] constexpr std::size_t bytes() const { return copies().begin + 2 * copies().phase; }
};
static_assert(sizeof(SegmentHead) <= SegmentLayout::of(2, 1 << 20).packets().begin);

/// One launch. Everything that can be known before it is: divisions and long products take a kernel longer
/// than the data takes to cross the link.
struct AllReduceParams {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;
  int rank = 0;
  int size = 0;
  bool aligned = false;       ///< in and out to 16 bytes
  bool early = false;         ///< the next kernel may be set up as soon as this one runs (call.cuh)
  std::uint32_t packets = 0;  ///< what one thread moves at a time; two-shot: of one piece
  std::size_t piece = 0;      ///< two-shot: bytes of each rank's piece, a multiple of 16
  std::size_t chunk = 0;      ///< chunked: of a piece, a multiple of 16

  Control* control = nullptr;  ///< none for chunked
  /// The own slots, and for each step s the slot of this rank on the s-th rank to the right. Of parity 0 and
  /// phase 0; the strides lead to the others.
  std::byte* inbox = nullptr;
  std::byte* outbox[kMaxDevices] = {};
  std::size_t parity_stride = 0;
  std::size_t phase_stride = 0;
  std::size_t rank_stride = 0;
  SegmentHead* heads[kMaxDevices] = {};  ///< by rank, for protocols with flags beside the data
  DeviceGuard guard;
};

/// A kernel of copies.cuh.
struct RoundParams {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;
  std::size_t piece = 0;  ///< of each rank, a multiple of 16
  std::size_t begin = 0;  ///< of the round, in every piece
  std::size_t chunk = 0;  ///< of the round, a multiple of 16
  int rank = 0;
  int size = 0;
  bool aligned = false;  ///< in and out to 16 bytes

  Control* control = nullptr;
  const std::uint64_t* own_flags = nullptr;     ///< by source
  std::uint64_t* peer_flags[kMaxDevices] = {};  ///< this rank's, on each
  const std::byte* inbox = nullptr;             ///< slots of the phase and parity
  std::size_t rank_stride = 0;
  DeviceGuard guard;
};

}  // namespace onehop::cuda
