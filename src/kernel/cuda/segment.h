// SPDX-License-Identifier: Apache-2.0
// Layout of a rank's device segment: the memory through which the kernels of a group communicate. Plain data,
// for both compilers.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "onehop/device/view.h"

namespace onehop::cuda {

/// Kernel variants for exactly `ranks` ranks exist where they pay off; kMaxDevices denotes the variant for
/// any number.
[[nodiscard]] constexpr int kernel_ranks(int ranks, bool sum) {
  return sum && (ranks == 2 || ranks == 4) ? ranks : kMaxDevices;
}
/// Maximum number of threads per block. Two such blocks fit a multiprocessor at the same time (call.cuh),
/// with the 128 or 64 registers that this leaves each thread.
[[nodiscard]] constexpr int max_threads(int kernel_ranks) {
  return kernel_ranks == kMaxDevices ? 256 : 512;
}
/// Maximum number of blocks of a chunked call (chunked.cuh), and slots of each kind that a block uses in
/// turn. The number of blocks is that of an H200's multiprocessors. For the same memory, a ring of 4 is as
/// fast as one of 8 for most sizes (bench/results/gpu-kernels.md).
inline constexpr unsigned kMaxChunkedBlocks = 132;
inline constexpr unsigned kRing = 4;
/// Warps of a chunked block by role; `signallers` is for each of the two phases.
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
/// Data bytes of one rank's slot for the flag-in-data protocol (flagged.cuh). A slot takes twice as much
/// memory.
inline constexpr std::size_t kPacketSlotBytes = 256 << 10;
/// The largest unneeded result that a rank writes in one launch.
inline constexpr std::size_t kDiscardBytes = std::size_t{4} << 20;
/// After this many calls the whole slot is rewritten, so that no flag in it is ever 2^32 calls old.
inline constexpr std::uint32_t kScrubPeriod = 1u << 30;

/// A rank's count of the calls that used one family of slots. It lies in the rank's segment; peers do not
/// access it.
struct Control {
  std::uint64_t epoch;     ///< of the last call that started; grows by one per call
  std::uint32_t arrivals;  ///< blocks of the running call that have read the epoch
};

/// Start of a rank's device segment.
struct SegmentHead {
  Control packets;
  Control mail;
  Control rounds[2];     ///< of copies.cuh: adds, collects
  Control direct;        ///< of direct.cuh
  std::uint32_t failed;  ///< DeviceGuard::failed
  std::uint8_t unused[256 - 5 * sizeof(Control) - sizeof(std::uint32_t)];
  std::uint64_t round_flags[2][kMaxDevices];  ///< of copies.cuh, by source
  std::uint64_t direct_flags[kMaxDevices];    ///< of direct.cuh, by source
  std::uint64_t direct_places[2][kMaxDevices];
  /// For chunked.cuh: the number of chunks that each block has begun in all earlier calls; and flags by
  /// phase, block, slot and source, which a peer raises to the number of a chunk.
  std::uint64_t chunks[kMaxChunkedBlocks];
  std::uint64_t flags[2][kMaxChunkedBlocks][kRing][kMaxDevices];
};

// For pairs.cuh. A pair of ranks has a number of streams per direction, and a ring of slots per stream. On
// either side one warp handles a stream.
inline constexpr unsigned kPairWarps = 16;  ///< per block; either all of them send or all receive
/// Blocks of kPairWarps warps in which a rank sends to all its peers.
inline constexpr unsigned kMaxPairBlocks = 64;
inline constexpr unsigned kMaxPairStreams = 1024;  ///< to all peers together
inline constexpr unsigned kPairDepth = 2;
inline constexpr std::size_t kMaxPairSlotBytes = 8 << 10;
/// The longest message that travels by packets.
inline constexpr std::size_t kPairPacketBytes = 64 << 10;
/// In a message that travels by bundles: the data bytes of 32 bundles, and the bytes that these take in a
/// slot.
inline constexpr std::size_t kBundlesDataBytes = std::size_t{32} * 7 * 8;
inline constexpr std::size_t kBundlesSlotBytes = std::size_t{32} * 8 * 8;
/// The longest message that travels by bundles. With more ranks the limit holds for the sum of what a rank
/// sends to all peers.
[[nodiscard]] constexpr std::size_t pair_bundle_bytes(std::size_t ranks) {
  return (std::size_t{4} << 20) / std::max<std::size_t>(ranks - 1, 1) / kBundlesDataBytes * kBundlesDataBytes;
}
/// Number of streams for one direction of a pair.
[[nodiscard]] constexpr unsigned pair_streams(std::size_t ranks) {
  return kMaxPairBlocks / std::max(static_cast<unsigned>(ranks) - 1, 1u) * kPairWarps;
}
static_assert(pair_streams(2) <= kMaxPairStreams && 7 * pair_streams(8) <= kMaxPairStreams);

/// A rank's counts for pairs.cuh. The peer s ranks to the right has entry s - 1, or the streams from
/// (s - 1) * pair_streams() on.
struct PairHead {
  // Owned by the rank: what it has sent and taken in all earlier launches.
  std::uint64_t sent[kMaxDevices];  ///< messages by packets or bundles
  std::uint64_t received[kMaxDevices];
  std::uint32_t arrivals[kMaxDevices];  ///< blocks of the running launch that have read these
  std::uint64_t chunks_sent[kMaxPairStreams];
  std::uint64_t chunks_received[kMaxPairStreams];
  // Raised by peers; these numbers only grow.
  std::uint64_t taken[kMaxDevices];             ///< messages that the peer has taken
  std::uint64_t chunks_ready[kMaxPairStreams];  ///< chunks that have arrived in this rank's slots so far
  std::uint64_t chunks_taken[kMaxPairStreams];  ///< chunks from this rank that the peer has taken
};

/// Where a protocol's slots lie in every segment. The slot of parity p, phase f and rank r starts at
///   begin + p * parity + f * phase + r * rank.
/// Chunked: p is the slot of the ring, with kRing slots for each block.
struct Slots {
  std::size_t begin = 0;
  std::size_t parity = 0;
  std::size_t phase = 0;
  std::size_t rank = 0;
};

/// Layout of the segment behind the head, for a group of `size` ranks.
struct SegmentLayout {
  std::size_t ranks = 0;
  std::size_t chunk_bytes = 0;  ///< largest chunk
  std::size_t mail_bytes = 0;   ///< largest message of a two-shot over mailboxes
  /// Most bytes of a piece that copy engines carry in a round; 0: copy engines are not used.
  std::size_t round_bytes = 0;
  std::size_t pair_slot = 0;  ///< bytes per slot of pairs.cuh

  /// `staging`: bytes that a rank can stage at a time; `copies`: bytes that it provides for copy engines.
  static constexpr SegmentLayout of(int size, std::size_t staging, std::size_t copies = 0) {
    const auto ranks = static_cast<std::size_t>(size);
    if (ranks == 1) return {.ranks = 1};  // nothing is staged for anyone
    // Chunk sizes that are no power of two are slower, by 7% with 7.5 KiB.
    const std::size_t chunk = std::bit_floor(staging / (ranks * 128 * kRing));
    return {ranks, chunk < 512 ? 512 : chunk, staging / (512 * ranks) * (512 * ranks),
            copies / (4 * ranks) / 512 * 512,
            std::clamp(std::bit_floor(staging / ((ranks - 1) * pair_streams(ranks) * kPairDepth)),
                       std::size_t{512}, kMaxPairSlotBytes)};
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
  /// Lamport buffers (mailboxes): one region per parity. One-shot cuts it into a slot per source, two-shot
  /// into two phases with a slot per rank each.
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
  /// For pairs.cuh: the head; then slots of packets and of bundles, by parity and peer; then rings, by peer
  /// and stream.
  [[nodiscard]] constexpr std::size_t pairs() const { return copies().begin + 2 * copies().phase; }
  [[nodiscard]] constexpr Slots pair_packets() const {
    return {.begin = pairs() + (sizeof(PairHead) + 4095) / 4096 * 4096,
            .parity = (ranks - 1) * 2 * kPairPacketBytes,
            .phase = 0,
            .rank = 2 * kPairPacketBytes};
  }
  [[nodiscard]] constexpr Slots pair_bundles() const {
    const std::size_t slot = pair_bundle_bytes(ranks) / kBundlesDataBytes * kBundlesSlotBytes;
    return {.begin = pair_packets().begin + 2 * pair_packets().parity,
            .parity = (ranks - 1) * slot,
            .phase = 0,
            .rank = slot};
  }
  [[nodiscard]] constexpr Slots pair_rings() const {
    return {.begin = pair_bundles().begin + 2 * pair_bundles().parity,
            .parity = pair_slot,
            .phase = kPairDepth * pair_slot,  // of the next stream
            .rank = std::size_t{pair_streams(ranks)} * kPairDepth * pair_slot};
  }
  /// Destination for results that a rank does not need.
  [[nodiscard]] constexpr std::size_t discard() const {
    return pair_rings().begin + (ranks - 1) * pair_rings().rank;
  }
  [[nodiscard]] constexpr std::size_t bytes() const { return discard() + kDiscardBytes; }
};
static_assert(sizeof(SegmentHead) <= SegmentLayout::of(2, 1 << 20).packets().begin);

}  // namespace onehop::cuda
