// Which all-reduces the stress program makes: random, and by their seed the same on every rank.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gpu/stress_ops.h"

namespace onehop::testing {

/// Operations that run one after the other in one part of the arena; nothing happens between them.
using StressBatch = std::vector<StressOp>;

class StressPlan {
 public:
  StressPlan(std::uint64_t seed, int rank);

  /// At most `most` operations, at least one, within [begin, begin + kPartBytes) of the arena. Sizes are
  /// mostly 1 byte to 64 KiB, seldom up to 4 MiB; types, reductions, chains, in place or not, and forced
  /// algorithms are the same on all ranks, alignment is not.
  [[nodiscard]] StressBatch batch(int most, std::uint32_t begin);
  /// A number below `limit`, the same on all ranks.
  [[nodiscard]] std::uint32_t below(std::uint32_t limit) {
    return static_cast<std::uint32_t>(together_() % limit);
  }

  /// Room for a few of the largest operations.
  static constexpr std::uint32_t kPartBytes = 32u << 20;

 private:
  [[nodiscard]] std::uint32_t random_bytes();
  [[nodiscard]] StressOp first_link();
  [[nodiscard]] StressOp next_link(const StressOp& last);
  [[nodiscard]] std::uint32_t place(const StressOp& op);

  std::mt19937_64 together_;
  std::mt19937_64 own_;
  std::uint32_t used_ = 0;  ///< of the arena, the same on all ranks
};

/// "all_reduce of 17 bf16 sum, in place, one-shot".
[[nodiscard]] std::string describe(const StressOp& op);

}  // namespace onehop::testing
