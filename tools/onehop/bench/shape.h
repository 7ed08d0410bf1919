// SPDX-License-Identifier: Apache-2.0
// The layout of a size for a collective: pure functions, so that all ranks compute the same.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/bench.h"

namespace onehop::cli {

/// A rank's data of one size. A slot is the memory of one call. It holds both sides on every rank, even a side
/// that only the root uses, so that all slots have the same layout.
struct Shape {
  std::size_t count = 0;  ///< elements of a block
  std::size_t in_count = 0;
  std::size_t out_count = 0;
  std::uint64_t bytes = 0;  ///< of all blocks: the size asked for, rounded down to whole blocks
  std::uint64_t in_bytes = 0;
  std::uint64_t out_bytes = 0;
  std::size_t in = 0;  ///< offsets of the sides in a slot
  std::size_t out = 0;
  std::size_t slot_bytes = 0;
};

[[nodiscard]] Shape shape_of(const BenchOptions& options, Rank rank, std::uint64_t bytes);

/// The bytes of the largest slot of all sizes. Does not depend on the rank.
[[nodiscard]] std::size_t largest_slot(const BenchOptions& options);
[[nodiscard]] std::uint64_t largest_size(const BenchOptions& options);

/// The fewest bytes that a rank reads and writes in a call.
[[nodiscard]] std::uint64_t least_touched(const BenchOptions& options, std::uint64_t bytes);

/// Whether the output has the same offset in the slot on all ranks.
[[nodiscard]] bool has_symmetric_output(const BenchOptions& options);

/// Whether this rank has an output.
[[nodiscard]] bool has_output(const BenchOptions& options, Rank rank);

}  // namespace onehop::cli
