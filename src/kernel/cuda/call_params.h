// SPDX-License-Identifier: Apache-2.0
// What the host tells the kernels. Plain data, for both compilers.
#pragma once

#include "kernel/cuda/segment.h"
#include "kernel/scale.h"

namespace onehop::cuda {

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
  bool by_peer = false;       ///< two-shot over mailboxes: to one peer after the other
  std::uint32_t packets = 0;  ///< what one thread moves at a time; two-shot: of one piece
  std::size_t piece = 0;      ///< two-shot: bytes of each rank's piece, a multiple of 16
  std::size_t chunk = 0;      ///< chunked: of a piece, a multiple of 16
  std::size_t block = 0;      ///< reduce-scatter: bytes of a block that this launch reduces
  DeviceFault::Phase phase = DeviceFault::all_reduce;

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
  Scale scale;
};

/// Most all-reduces in one launch: of the last one the share in it is small, and every launch brings
/// parameters for so many.
inline constexpr std::size_t kMaxListed = 32;

/// Several all-reduces in one launch, over packets. The packets of one message follow those of the one
/// before; `in`, `out`, `bytes` and `aligned` say nothing here.
struct AllReduceListParams : AllReduceParams {
  struct Message {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::size_t bytes = 0;
  };
  std::uint32_t first[kMaxListed] = {};  ///< packet of each message; behind the last message all ones
  Message messages[kMaxListed] = {};
};

/// How a message between two ranks is cut; the same on both, so it follows from its length alone.
struct PairShape {
  std::uint32_t chunk = 0;    ///< bytes
  std::uint32_t streams = 0;  ///< that the chunks are dealt to in turn; 0: it goes by packets or bundles
  bool bundles = false;
};
/// `most` streams; `slot` bytes in each of their slots. In as few rounds as it takes, all of them full: no
/// stream has a chunk more than others, but for what is left over.
[[nodiscard]] constexpr PairShape cut_into_chunks(std::size_t bytes, std::size_t slot, unsigned most) {
  const std::size_t rounds = bytes / (most * slot) + (bytes % (most * slot) != 0 ? 1 : 0);
  const std::size_t parts = most * std::max<std::size_t>(rounds, 1);
  const std::size_t share = ((bytes + parts - 1) / parts + 511) / 512 * 512;  // a packet for every lane
  const std::size_t chunk = std::clamp(share, std::min<std::size_t>(1 << 10, slot), slot);
  return {.chunk = static_cast<std::uint32_t>(chunk),
          .streams = static_cast<std::uint32_t>(std::min<std::size_t>(most, (bytes + chunk - 1) / chunk))};
}

/// One direction of a pair: what a rank sends to a peer or receives from it, in one launch of pairs.cuh.
struct PairEnd {
  std::byte* data = nullptr;  ///< the user's
  std::size_t bytes = 0;
  PairShape shape;

  // On the rank that receives.
  std::byte* packets = nullptr;           ///< slot of parity 0
  std::byte* bundles = nullptr;           ///< the same
  std::byte* slots = nullptr;             ///< ring of stream 0
  std::uint64_t* chunks_ready = nullptr;  ///< by stream
  // On the rank that sends.
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
  /// Rows of the grid: so many that send, then so many that receive, each one for every entry of `pairs` or
  /// none; then `parts` for what stays on this rank. Others have nothing to do.
  std::uint32_t senders = 0;
  std::uint32_t receivers = 0;
  std::uint32_t parts = 1;  ///< warps that share a stream of what is combined or relayed
  std::uint32_t slot = 0;   ///< bytes
  std::size_t packet_parity = 0;
  std::size_t bundle_parity = 0;
  DeviceFault::Phase phase = DeviceFault::user;
  DeviceGuard guard;
  /// What stays on this rank: copied where `out` is another place; combined with what comes.
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;
  PairShape own_shape;  ///< of `bytes`, where they are combined or relayed
  int root = -1;        ///< entry of `pairs` of the rank that a result is forwarded to, or relayed from
  Pair pairs[kMaxDevices - 1] = {};  ///< with the next rank to the right, and so on
  Scale scale;                       ///< of what is combined
};

/// Where the ranks of a group wait for one another, so that copies before it have ended everywhere:
/// meeting.cuh.
struct Meeting {
  int rank = 0;
  int size = 0;
  DeviceFault::Phase phase = DeviceFault::user;
  Control* control = nullptr;
  const std::uint64_t* own_flags = nullptr;     ///< by source
  std::uint64_t* peer_flags[kMaxDevices] = {};  ///< this rank's, on each
  DeviceGuard guard;
};

/// A kernel of direct.cuh.
struct DirectParams {
  Meeting meeting;
  std::uint64_t place = 0;                       ///< what must be the same on all ranks
  const std::uint64_t* own_places = nullptr;     ///< by parity and source
  std::uint64_t* peer_places[kMaxDevices] = {};  ///< this rank's of parity 0, on each
};

/// A kernel of copies.cuh.
struct RoundParams {
  Meeting meeting;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;
  std::size_t piece = 0;             ///< of each rank, a multiple of 16
  std::size_t begin = 0;             ///< of the round, in every piece
  std::size_t chunk = 0;             ///< of the round, a multiple of 16
  bool aligned = false;              ///< in and out to 16 bytes
  const std::byte* inbox = nullptr;  ///< slots of the phase and parity
  std::size_t rank_stride = 0;
  Scale scale;
};

}  // namespace onehop::cuda
