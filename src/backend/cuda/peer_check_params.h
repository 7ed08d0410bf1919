// SPDX-License-Identifier: Apache-2.0
// Parameters and results of the peer check's kernels, shared by host and device.
#pragma once

#include <cstdint>

namespace onehop::peer_check {

/// The unit of transfer and of verification: one access by one thread.
inline constexpr std::uint64_t kUnitBytes = 16;
inline constexpr unsigned kBlock = 512;       ///< threads per block of the moving and verifying kernels
inline constexpr unsigned kAtomicBlocks = 4;  ///< blocks of the atomics kernel
inline constexpr unsigned kAtomicBlock = 256;
inline constexpr unsigned kAtomicRounds = 256;  ///< additions to each kind of counter per thread
inline constexpr unsigned kCounters = 64;

/// Result of a comparison. All zero: everything is as expected.
struct Verdict {
  std::uint64_t wrong = 0;     ///< units
  std::uint64_t from_end = 0;  ///< units - index of the first wrong one; the first one gives the maximum
};

struct PingResult {
  std::uint64_t elapsed_ns = 0;
  std::uint32_t rounds_done = 0;  ///< including the warm-up
  std::uint32_t gave_up = 0;
};

/// Each device's memory besides data. Parts written by different devices are on different cache lines.
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

/// onehop_peer_load: reads `from` and writes the result to `to`.
struct LoadParams {
  const void* from;
  void* to;
  std::uint64_t units;
};

/// onehop_peer_verify: compares with the pattern of `key` and adds to `verdict`.
struct VerifyParams {
  const void* data;
  std::uint64_t units;
  std::uint64_t key;
  Verdict* verdict;
};

/// onehop_peer_atomics: every thread makes kAtomicRounds additions to each kind of counter, taking the
/// counters in turn. It adds the counter's index + 1 to 32-bit counters and 1 to 64-bit ones. The values
/// returned by the 64-bit additions are summed in `ticket_sum`.
struct AtomicsParams {
  std::uint32_t* counters32;
  std::uint64_t* counters64;
  std::uint64_t* ticket_sum;
};

/// onehop_peer_ping: one thread. If it `starts`, it raises `theirs` to 1, 2, ... and waits for `mine` to
/// follow. Otherwise it waits first.
struct PingParams {
  std::uint32_t* mine;
  std::uint32_t* theirs;
  PingResult* result;
  std::uint64_t limit_ns;  ///< time limit for the whole kernel; then it gives up
  std::uint32_t warmup;    ///< number of round trips that are not timed
  std::uint32_t rounds;
  std::uint32_t starts;
};

}  // namespace onehop::peer_check
