// SPDX-License-Identifier: Apache-2.0
// Kernel parameters. Plain data, for both compilers.
#pragma once

#include "kernel/cuda/segment.h"
#include "kernel/scale.h"

namespace onehop::cuda {

/// Parameters of one launch. The host computes everything that it can in advance: in a kernel, divisions and
/// long products take longer than the data takes to cross the link.
struct AllReduceParams {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;
  int rank = 0;
  int size = 0;
  bool aligned = false;       ///< in and out are aligned to 16 bytes
  bool early = false;         ///< the next kernel may be launched as soon as this one runs (call.cuh)
  bool by_peer = false;       ///< two-shot over mailboxes: send to one peer after the other
  std::uint32_t packets = 0;  ///< packets, each moved by one thread at a time; two-shot: of one piece
  std::size_t piece = 0;      ///< two-shot: bytes of each rank's piece, a multiple of 16
  std::size_t chunk = 0;      ///< chunked: bytes of a piece per chunk, a multiple of 16
  std::size_t block = 0;      ///< reduce-scatter: bytes of a block that this launch reduces
  DeviceFault::Phase phase = DeviceFault::all_reduce;

  Control* control = nullptr;  ///< nullptr for chunked
  /// The own slots, and for each step s this rank's slot on the s-th rank to the right. These are the slots
  /// of parity 0 and phase 0; the strides lead to the others.
  std::byte* inbox = nullptr;
  std::byte* outbox[kMaxDevices] = {};
  std::size_t parity_stride = 0;
  std::size_t phase_stride = 0;
  std::size_t rank_stride = 0;
  SegmentHead* heads[kMaxDevices] = {};  ///< by rank, for protocols whose flags are beside the data
  DeviceGuard guard;
  Scale scale;
};

/// Maximum number of all-reduces in one launch. At this number each one's share of the launch cost is small,
/// and every launch carries parameters for the maximum.
inline constexpr std::size_t kMaxListed = 32;

/// Several all-reduces in one launch, over packets. The packets of the messages are numbered consecutively.
/// `in`, `out`, `bytes` and `aligned` are unused here.
struct AllReduceListParams : AllReduceParams {
  struct Message {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::size_t bytes = 0;
  };
  std::uint32_t first[kMaxListed] = {};  ///< first packet of each message; all ones behind the last message
  Message messages[kMaxListed] = {};
};

/// How a message between two ranks is cut. Both ranks must agree, so it depends on the length alone.
struct PairShape {
  std::uint32_t chunk = 0;    ///< bytes
  std::uint32_t streams = 0;  ///< streams to which the chunks are dealt in turn; 0: packets or bundles
  bool bundles = false;
};
/// Cuts into chunks for at most `most` streams, with `slot` bytes in each of their slots. Takes as few rounds
/// as possible, all of them full. No stream has more chunks than another, except for the remainder.
[[nodiscard]] constexpr PairShape cut_into_chunks(std::size_t bytes, std::size_t slot, unsigned most) {
  const std::size_t rounds = bytes / (most * slot) + (bytes % (most * slot) != 0 ? 1 : 0);
  const std::size_t parts = most * std::max<std::size_t>(rounds, 1);
  const std::size_t share = ((bytes + parts - 1) / parts + 511) / 512 * 512;  // at least one packet per lane
  const std::size_t chunk = std::clamp(share, std::min<std::size_t>(1 << 10, slot), slot);
  return {.chunk = static_cast<std::uint32_t>(chunk),
          .streams = static_cast<std::uint32_t>(std::min<std::size_t>(most, (bytes + chunk - 1) / chunk))};
}

/// One direction of a pair: what a rank sends to a peer, or receives from it, in one launch of pairs.cuh.
struct PairEnd {
  std::byte* data = nullptr;  ///< in the user's memory
  std::size_t bytes = 0;
  PairShape shape;

  // On the receiving rank.
  std::byte* packets = nullptr;           ///< slot of parity 0
  std::byte* bundles = nullptr;           ///< slot of parity 0
  std::byte* slots = nullptr;             ///< ring of stream 0
  std::uint64_t* chunks_ready = nullptr;  ///< by stream
  // On the sending rank.
  std::uint64_t* taken = nullptr;
  std::uint64_t* chunks_taken = nullptr;
  // On this rank.
  std::uint64_t* messages = nullptr;  ///< PairHead::sent or received
  std::uint64_t* chunks = nullptr;    ///< PairHead::chunks_sent or chunks_received, by stream
};

struct PairParams {
  struct Pair {
    PairEnd to;
    PairEnd from;
    std::uint32_t* arrivals = nullptr;
  };

  int rank = 0;
  int size = 0;
  bool early = false;  ///< as in AllReduceParams
  /// Rows of the grid: first `senders` rows that send, then `receivers` rows that receive. Each of these
  /// counts is 0 or the number of entries of `pairs`. `parts` rows for the data that stays on this rank
  /// follow; any further rows are idle.
  std::uint32_t senders = 0;
  std::uint32_t receivers = 0;
  std::uint32_t parts = 1;  ///< warps that share a stream of combined or relayed data
  std::uint32_t slot = 0;   ///< bytes per slot
  std::size_t packet_parity = 0;
  std::size_t bundle_parity = 0;
  DeviceFault::Phase phase = DeviceFault::user;
  DeviceGuard guard;
  /// The data that stays on this rank: copied if `out` differs, and combined with received data.
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;
  PairShape own_shape;  ///< of `bytes`, if they are combined or relayed
  /// Entry of `pairs` of the rank to which a result is forwarded, or from which data is relayed.
  int root = -1;
  Pair pairs[kMaxDevices - 1] = {};  ///< entry i: the rank i + 1 to the right
  Scale scale;                       ///< for combined data
};

/// Where the ranks of a group synchronize, which completes earlier copies on all ranks: meeting.cuh.
struct Meeting {
  int rank = 0;
  int size = 0;
  DeviceFault::Phase phase = DeviceFault::user;
  Control* control = nullptr;
  const std::uint64_t* own_flags = nullptr;     ///< by source
  std::uint64_t* peer_flags[kMaxDevices] = {};  ///< by destination: this rank's flag there
  DeviceGuard guard;
};

/// Parameters of a kernel of direct.cuh.
struct DirectParams {
  Meeting meeting;
  std::uint64_t place = 0;                       ///< must be the same on all ranks
  const std::uint64_t* own_places = nullptr;     ///< by parity and source
  std::uint64_t* peer_places[kMaxDevices] = {};  ///< by destination: this rank's word of parity 0 there
};

/// Parameters of a kernel of copies.cuh.
struct RoundParams {
  Meeting meeting;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;
  std::size_t piece = 0;             ///< bytes of each rank's piece, a multiple of 16
  std::size_t begin = 0;             ///< offset of the round in every piece
  std::size_t chunk = 0;             ///< bytes per round, a multiple of 16
  bool aligned = false;              ///< in and out are aligned to 16 bytes
  const std::byte* inbox = nullptr;  ///< slots of the phase and parity
  std::size_t rank_stride = 0;
  Scale scale;
};

}  // namespace onehop::cuda
