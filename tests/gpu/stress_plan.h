// SPDX-License-Identifier: Apache-2.0
// The calls that the stress program makes: random, and through their seed the same on every rank.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/stress_ops.h"

namespace onehop::testing {

/// "all_reduce", "send_recv".
[[nodiscard]] const char* stress_name(Collective kind);
[[nodiscard]] std::vector<Collective> all_stress_kinds();
/// Parses a list like "all_reduce,send_recv". Throws std::invalid_argument that lists the valid names.
[[nodiscard]] std::vector<Collective> parse_stress_kinds(std::string_view list);

/// Operations that run back to back in one part of the arena.
using StressBatch = std::vector<StressOp>;

class StressPlan {
 public:
  StressPlan(std::uint64_t seed, int rank, int ranks, std::vector<Collective> kinds = all_stress_kinds());

  /// At most `most` operations, at least one, within [begin, begin + kPartBytes) of the arena's memories.
  /// About half are all-reduces, if these are among the kinds; occasionally several share a GroupCall. Sizes
  /// are mostly 1 byte to 64 KiB, rarely up to 4 MiB. Kinds, types, reductions, roots, chains, in place or
  /// not, and forced algorithms are the same on all ranks; alignment and memory are not.
  [[nodiscard]] StressBatch batch(int most, std::uint32_t begin);
  /// A number below `limit`, the same on all ranks.
  [[nodiscard]] std::uint32_t below(std::uint32_t limit) {
    return static_cast<std::uint32_t>(together_() % limit);
  }

  /// Room for a few of the largest operations.
  static constexpr std::uint32_t kPartBytes = 32u << 20;

 private:
  [[nodiscard]] std::uint32_t random_bytes();
  [[nodiscard]] Collective choose(const std::vector<Collective>& among);
  /// The kinds that can continue from what `last` leaves.
  [[nodiscard]] std::vector<Collective> successors(const StressOp& last) const;
  [[nodiscard]] StressOp first_link();
  [[nodiscard]] StressOp next_link(const StressOp& last, const std::vector<Collective>& kinds);
  /// An all-reduce in one GroupCall with `last`, and usually like it.
  [[nodiscard]] StressOp beside(const StressOp& last);
  /// Reserves memory for this many elements.
  [[nodiscard]] std::uint32_t reserve(std::uint32_t elements, DType type);
  void place_first(StressOp& op);

  std::mt19937_64 together_;
  std::mt19937_64 own_;
  std::uint32_t rank_;
  std::uint32_t ranks_;
  std::vector<Collective> kinds_;
  std::uint32_t used_ = 0;  ///< of the arena; the same on all ranks
};

/// "all_reduce of 17 bf16 sum, in place, one-shot".
[[nodiscard]] std::string describe(const StressOp& op);

}  // namespace onehop::testing
