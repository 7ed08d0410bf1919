// SPDX-License-Identifier: Apache-2.0
// The streaming algorithms, their kernel parameters and scratch memory. For both compilers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onehop/device/view.h"

#include "backend/cuda/scratch.h"
#include "call/scale.h"

namespace onehop::cuda {

struct DeviceAlgorithm;
extern const DeviceAlgorithm kStreamingOneShot;
extern const DeviceAlgorithm kStreamingTwoShot;
extern const DeviceAlgorithm kStreamingExchange;
extern const DeviceAlgorithm kStreamingOneWay;

/// Bytes of a packet.
inline constexpr unsigned kStreamWidth = 16;
/// The word that streams of integers escape (wire/escaped.cuh). Any value that real data rarely contains will do. This is
/// 2^32 divided by the golden ratio, which hash functions use (Knuth, The Art of Computer Programming, 6.4).
inline constexpr std::uint32_t kEscapeKey = 0x9e3779b9;
/// Warps that a block has besides if its rings are reused: one gives credits to the peers, one awaits theirs.
inline constexpr unsigned kCreditWarps = 2;
/// Chunks by which clearing lags behind (stream.cuh).
inline constexpr unsigned kOneShotLag = 0;
inline constexpr unsigned kTwoShotLag = 1;
/// Chunks of a ring that is reused. A ring of 4 costs up to 4% from 8 MiB on, because credits take that long.
[[nodiscard]] constexpr unsigned least_depth(unsigned lag) {
  return 4 + lag;
}
inline constexpr unsigned kOneShotDepth = 16;
inline constexpr unsigned kTwoShotDepth = 8;
/// Chunks for which there is one credit. At most depth - 3 - lag, or a block could wait for a credit that the peer owes
/// only once the block has gone on (stream.cuh). Every credit costs a release: with 1, 2 and 4 chunks for a credit and
/// rings of 8 chunks of two packets per thread, 64 MiB take 202, 190.5 and 189 us.
[[nodiscard]] constexpr unsigned chunks_per_credit(unsigned depth, unsigned lag) {
  return depth / 2 < depth - 3 - lag ? depth / 2 : depth - 3 - lag;
}

static_assert(chunks_per_credit(least_depth(kOneShotLag), kOneShotLag) >= 1 &&
              chunks_per_credit(least_depth(kTwoShotLag), kTwoShotLag) >= 1);

/// A credit says how many chunks of a call were cleared: epoch << kCreditBits | chunks. So those that are left from
/// earlier calls are less.
inline constexpr unsigned kCreditBits = 24;
/// The most bytes of a launch: fewer than 2^24 chunks, even if one warp of one block moves them all.
inline constexpr std::size_t kStreamLaunchBytes = std::size_t{4} << 30;

/// By block and by the peer that gives the credits. Peers write here.
struct StreamCredits {
  std::uint64_t from[kMaxDevices];
};

/// StreamParams::root of calls without one.
inline constexpr int kNoRoot = -1;

/// In an order by which one-shot reads two lines (64 bytes) of the constant cache until its first packet has arrived. The
/// first line has room for 48 bytes.
struct StreamParams {
  const std::byte* in = nullptr;  ///< one way: null on the rank that receives
  std::byte* out = nullptr;       ///< one way: null on the rank that sends
  std::uint32_t packets = 0;      ///< of the message; two-shot: of each piece, in all chunks
  std::uint32_t slice = 0;        ///< packets of a block; the last blocks may have fewer
  std::uint32_t movers = 0;       ///< threads of a block that move packets
  std::uint32_t depth = 0;        ///< chunks of a ring
  EpochCounter* counter = nullptr;
  std::size_t parity_stride = 0;

  /// The own rings, parity 0 and block 0: those of the first source. There are none for the own rank.
  std::byte* inbox = nullptr;
  std::byte* peer_inbox = nullptr;  ///< between 2 ranks: the peer's
  Scale scale;
  std::uint32_t block_stride = 0;  ///< bytes of a ring
  std::uint32_t whole = 0;         ///< packets of the input that can be loaded and stored whole
  int rank = 0;
  bool early = false;    ///< the next kernel may start as soon as this one runs (sync/call.cuh)
  bool soon = false;     ///< one-shot: it may start once this one has received something
  bool poison = false;   ///< fill the output with NaN if the call fails (sync/call.cuh)
  bool aligned = false;  ///< in and out are aligned to 16 bytes
  DeviceFault::Phase phase = DeviceFault::user;
  int size = 0;
  DeviceGuard guard;

  const std::byte* own =
      nullptr;  ///< what this rank reduces or copies, where it sends something else or nothing
  std::byte* own_out = nullptr;  ///< not reduced: where it copies it; null: it is there
  int root = kNoRoot;            ///< of a reduce
  std::size_t bytes = 0;
  std::size_t phase_stride = 0;
  std::size_t rank_stride = 0;
  std::size_t escapes = 0;  ///< not floats: where packets' bytes begin, from a source's rings on
  /// For each step s, the rings of this rank on the s-th rank to the right.
  std::byte* outbox[kMaxDevices] = {};
  StreamCredits* credits[kMaxDevices] = {};  ///< by rank: of block 0
  // streaming_exchange_any: from the block of one rank to the next. `in` and `out` are those of rank 0.
  std::size_t in_stride = 0;
  std::size_t out_stride = 0;
};
static_assert(offsetof(StreamParams, inbox) == 48 && offsetof(StreamParams, guard) == 48 + 64 - 8);

}  // namespace onehop::cuda
