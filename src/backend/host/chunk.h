// SPDX-License-Identifier: Apache-2.0
// How many bytes a step of a host algorithm moves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>

#include "onehop/types.h"

#include "backend/host/staging.h"

namespace onehop::host {

// Staged chunks should fit a core's second-level cache, together with their input and output.
inline constexpr std::size_t kOneShotChunk = 128 << 10;
inline constexpr std::size_t kTwoShotChunk = 256 << 10;
/// Of reduce_scatter: for all other ranks together.
inline constexpr std::size_t kReduceScatterChunk = 256 << 10;

/// Bytes per step, a multiple of 64 and of every element size. `chosen`: by a tuning table.
[[nodiscard]] inline std::size_t chunk_of(Algorithm kind, std::optional<std::size_t> chosen,
                                          std::size_t staging_bytes, int ranks) {
  const StagingLayout layout(staging_bytes);
  return kind == Algorithm::two_shot ? std::min(chosen.value_or(kTwoShotChunk), layout.max_chunk(ranks))
                                     : std::min(chosen.value_or(kOneShotChunk), layout.input_bytes);
}

/// The part of a chunk that rank r combines. Parts are whole cache lines, so that ranks do not write to
/// shared ones.
struct Part {
  std::size_t offset = 0;
  std::size_t bytes = 0;

  Part(std::size_t chunk_bytes, int ranks, int r) {
    const std::size_t lines = (chunk_bytes + 63) / 64;
    const auto n = static_cast<std::size_t>(ranks);
    const std::size_t each = (lines + n - 1) / n * 64;
    offset = std::min(static_cast<std::size_t>(r) * each, chunk_bytes);
    bytes = std::min(each, chunk_bytes - offset);
  }
};

/// With fewer bytes, the step in which ranks learn where the data of all ranks lies costs more than a second
/// copy.
inline constexpr std::size_t kMinZeroCopyBytes = 64 << 10;
/// The same for ranks of one process, whose memory is always at hand.
inline constexpr std::size_t kMinSharedBytes = 32 << 10;
/// The same for private memory of other processes. The system calls cost 3 us, and the kernel copies slower.
inline constexpr std::size_t kMinPulledBytes = 128 << 10;
/// The same for data that several ranks read at once, per reader: they take turns in the owner's page tables.
/// (Broadcast on an Intel Xeon, staged and as single copies: among 4 ranks 1 MB 167 and 363 us, 16 MB 4.0 and
/// 3.0 ms; among 8 ranks 4 MB 1.0 and 2.7 ms, 64 MB 28 and 21 ms.)
inline constexpr std::size_t kMinPulledBytesPerReader = 3 << 20;

}  // namespace onehop::host
