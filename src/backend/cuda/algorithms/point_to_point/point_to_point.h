// SPDX-License-Identifier: Apache-2.0
// Point-to-point channels: kernel parameters and scratch memory. Plain data, for both compilers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "onehop/device/view.h"

#include "backend/cuda/scratch.h"
#include "call/scale.h"

namespace onehop::cuda {

// A pair of ranks has a number of rings per direction. On either side one warp handles a ring.
inline constexpr unsigned kChannelWarps = 16;  ///< per block; either all of them send or all receive
/// Blocks of kChannelWarps warps in which a rank sends to all its peers.
inline constexpr unsigned kMaxChannelBlocks = 64;
inline constexpr unsigned kMaxRings = 1024;  ///< to all peers together
inline constexpr unsigned kRingDepth = 2;
/// The longest message that travels by LL packets.
inline constexpr std::size_t kMaxLLBytes = 64 << 10;
/// In a message by packed LL: the data bytes that a warp moves at a time, and the bytes that these take in a
/// slot.
inline constexpr std::size_t kPackedDataBytes = std::size_t{32} * 7 * 8;
inline constexpr std::size_t kPackedSlotBytes = std::size_t{32} * 8 * 8;

/// Number of rings for one direction of a pair.
[[nodiscard]] constexpr unsigned rings_per_peer(std::size_t ranks) {
  return kMaxChannelBlocks / std::max(static_cast<unsigned>(ranks) - 1, 1u) * kChannelWarps;
}
static_assert(rings_per_peer(2) <= kMaxRings && 7 * rings_per_peer(8) <= kMaxRings);

/// Counts the messages of a pair of ranks that travel whole; an epoch is a message's number. In a line of its own (128
/// bytes): all warps of a row read the count while blocks add to it. With both counts of a pair in one line, all-gathers
/// of 1 and 2 MB between 2 ranks that shared an H200 took 0.3 and 0.5 us more.
struct alignas(128) MessageCounter : EpochCounter {};
/// The two values that a sender reads before it sends, in one line of the cache. `taken` is the number of messages that the
/// peer has taken. The peer raises it, so it is in a sector of its own (32 bytes).
struct SentMessages : MessageCounter {
  alignas(32) std::uint64_t taken;
};
static_assert(sizeof(SentMessages) == 128);

/// A number that a peer raises and a warp polls. In a sector of its own (32 bytes), or the stores to other flags delay the
/// polls, and the polls those stores: with 16 flags to a line of 128 bytes, messages of 256 MB took up to 8% longer.
struct alignas(32) ChunkFlag {
  std::uint64_t chunks;
};

/// A rank's counts, at the start of its scratch memory. The peer s ranks to the right has entry s - 1, or the
/// rings from (s - 1) * rings_per_peer() on.
struct ChannelCounts {
  // Owned by the rank: what it has sent and taken in all earlier launches.
  SentMessages sent[kMaxDevices];
  MessageCounter received[kMaxDevices];
  std::uint64_t chunks_sent[kMaxRings];
  std::uint64_t chunks_received[kMaxRings];
  // Raised by peers, as is SentMessages::taken; these numbers only grow.
  ChunkFlag chunks_ready[kMaxRings];  ///< chunks that have arrived in this rank's slots so far
  ChunkFlag chunks_taken[kMaxRings];  ///< chunks from this rank that the peer has taken
};

/// How a message travels.
enum class Route : std::uint32_t {
  ll,         ///< whole, by LL packets
  ll_packed,  ///< whole, by packed LL
  ring,       ///< in chunks, through rings
};

/// How a message between two ranks is cut. Both ranks must agree, so it depends on the length alone.
struct MessageShape {
  Route route = Route::ll;
  std::uint32_t chunk = 0;  ///< ring: bytes
  std::uint32_t rings = 0;  ///< ring: the number of rings to which the chunks are dealt in turn
};

/// One direction of a pair: what a rank sends to a peer, or receives from it, in one launch.
struct ChannelEnd {
  std::byte* data = nullptr;  ///< in the user's memory
  std::size_t bytes = 0;
  MessageShape shape;
  bool poison = false;  ///< received data: fill it with NaN if the call fails (sync/call.cuh)

  // On the receiving rank.
  std::byte* packets = nullptr;       ///< slot of parity 0
  std::byte* packed = nullptr;        ///< slot of parity 0
  std::byte* slots = nullptr;         ///< those of ring 0
  ChunkFlag* chunks_ready = nullptr;  ///< by ring
  // On the sending rank.
  std::uint64_t* taken = nullptr;
  ChunkFlag* chunks_taken = nullptr;  ///< by ring
  // On this rank.
  EpochCounter* messages = nullptr;  ///< ChannelCounts::sent or received
  std::uint64_t* chunks = nullptr;   ///< ChannelCounts::chunks_sent or chunks_received, by ring
};

/// Both directions between this rank and another one.
struct ChannelPair {
  ChannelEnd to;
  ChannelEnd from;
};

/// The parameters that all kernels of channels have. Those of the pairs follow, for as many as a kernel serves.
struct ChannelCall {
  int rank = 0;
  int size = 0;
  bool early = false;  ///< the next kernel may start as soon as this one runs (sync/call.cuh)
  /// Rows of the grid: first `senders` rows that send, then `receivers` rows that receive. Each of these
  /// counts is 0 or the number of entries of `pairs`. `parts` rows for the data that stays on this rank
  /// follow; any further rows are idle.
  std::uint32_t senders = 0;
  std::uint32_t receivers = 0;
  std::uint32_t parts = 1;  ///< warps that share a ring of reduced or forwarded data
  std::uint32_t slot = 0;   ///< bytes per slot
  std::size_t ll_parity = 0;
  std::size_t packed_parity = 0;
  DeviceFault::Phase phase = DeviceFault::user;
  DeviceGuard guard;
  /// The data that stays on this rank: copied if `out` differs, and reduced with received data.
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;
  bool poison = false;     ///< if the kernel computes `out` from received data: as in ChannelEnd
  MessageShape own_shape;  ///< of `bytes`, if they are reduced or forwarded
  /// Entry of `pairs` of the rank to which a result is forwarded, or from which data is forwarded; -1: none.
  int root = -1;
};

struct ChannelParams : ChannelCall {
  ChannelPair pairs[kMaxDevices - 1] = {};  ///< entry i: the rank i + 1 to the right
  Scale scale;                              ///< for reduced data
};

/// The parameters of an exchange between 2 ranks. A call with buffers that were not used before changes the parameters of a
/// graph (driver/kernel_graphs.h), which takes 0.4 us longer with 1536 bytes than with 352, and 0.8 us longer if another
/// thread does the same (bench/results/gpu-kernels.md).
struct ChannelPairParams : ChannelCall {
  ChannelPair pairs[1] = {};
};

}  // namespace onehop::cuda
