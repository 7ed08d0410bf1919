// SPDX-License-Identifier: Apache-2.0
// What the kernels of the peer check take and leave behind: shared by host and device.
#pragma once

#include <cstdint>

namespace onehop::peer_check {

/// The unit of transfer and of verification: one access of one thread.
inline constexpr std::uint64_t kUnitBytes = 16;
inline constexpr unsigned kBlock = 512;       ///< threads of the moving and verifying kernels
inline constexpr unsigned kAtomicBlocks = 4;  ///< and of the atomics kernel
inline constexpr unsigned kAtomicBlock = 256;
inline constexpr unsigned kAtomicRounds = 256;  ///< additions to each kind of counter per thread
inline constexpr unsigned kCounters = 64;

/// Of a comparison. All zero: everything as expected.
struct Verdict {
  std::uint64_t wrong = 0;     ///< units
  std::uint64_t from_end = 0;  ///< units - index of the first wrong one, so that the first is the largest
};

struct PingResult {
  std::uint64_t elapsed_ns = 0;
  std::uint32_t rounds_done = 0;  ///< with the warm-up
  std::uint32_t gave_up = 0;
};

/// What each device has in its memory besides data. Parts that different devices write do not share lines.
struct Scratch {
  alignas(128) Verdict verdict;
  alignas(128) std::uint32_t counters32[kCounters];
  alignas(128) std::uint64_t counters64[kCounters];
  alignas(128) std::uint64_t ticket_sum;
  alignas(128) PingResult ping;
  alignas(128) std::uint32_t flag;
};

/// onehop_peer_store: writes the pattern of `key`.
struct StoreParams {
  void* to;
  std::uint64_t units;
  std::uint64_t key;
};

/// onehop_peer_load: reads `from`, writes what it read to `to`.
struct LoadParams {
  const void* from;
  void* to;
  std::uint64_t units;
};

/// onehop_peer_verify: compares with the pattern of `key`, adds to `verdict`.
struct VerifyParams {
  const void* data;
  std::uint64_t units;
  std::uint64_t key;
  Verdict* verdict;
};

/// onehop_peer_atomics: every thread adds kAtomicRounds times, going through the counters in turn: the
/// counter's index + 1 to a counter of 32 bits, and 1 to one of 64 bits. What the latter additions return is
/// added up in `ticket_sum`.
struct AtomicsParams {
  std::uint32_t* counters32;
  std::uint64_t* counters64;
  std::uint64_t* ticket_sum;
};

/// onehop_peer_ping: one thread. Raises `theirs` to 1, 2, ... and waits for `mine` to follow (`starts`), or
/// the other way round.
struct PingParams {
  std::uint32_t* mine;
  std::uint32_t* theirs;
  PingResult* result;
  std::uint64_t limit_ns;  ///< for everything; then it gives up
  std::uint32_t warmup;    ///< round trips that are not timed
  std::uint32_t rounds;
  std::uint32_t starts;
};

}  // namespace onehop::peer_check
