// SPDX-License-Identifier: Apache-2.0
// What a size means for a collective: pure functions, so that all ranks count alike.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/bench.h"

namespace onehop::cli {

/// A rank's data of one size. A slot is the memory that one call works on; every rank has both sides in it,
/// also the one that matters on the root alone, so that all slots are alike.
struct Shape {
  std::size_t count = 0;  ///< elements of a block
  std::size_t in_count = 0;
  std::size_t out_count = 0;
  std::uint64_t bytes = 0;  ///< of all blocks: the size asked for, rounded down to whole blocks
  std::uint64_t in_bytes = 0;
  std::uint64_t out_bytes = 0;
  std::size_t in = 0;  ///< where the sides begin in a slot
  std::size_t out = 0;
  std::size_t slot_bytes = 0;
};

[[nodiscard]] Shape shape_of(const BenchOptions& options, Rank rank, std::uint64_t bytes);

/// Of the slots of all sizes. Does not depend on the rank.
[[nodiscard]] std::size_t largest_slot(const BenchOptions& options);
[[nodiscard]] std::uint64_t largest_size(const BenchOptions& options);

/// Bytes that the rank with the least of them reads and writes in a call.
[[nodiscard]] std::uint64_t least_touched(const BenchOptions& options, std::uint64_t bytes);

/// Whether the output begins at the same place of the slot on all ranks.
[[nodiscard]] bool has_symmetric_output(const BenchOptions& options);

/// Whether this rank gets anything.
[[nodiscard]] bool has_output(const BenchOptions& options, Rank rank);

}  // namespace onehop::cli
