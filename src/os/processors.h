// SPDX-License-Identifier: Apache-2.0
// The processors (hardware threads) that ranks may run on, and whether each rank can have its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace onehop::os {

/// A set of processors, by the kernel's numbers. These are global to the machine, so processes in different
/// containers can compare their sets. May lie in shared memory: all zero bytes are the empty set.
class Processors {
 public:
  static constexpr int kMax = 8192;  ///< the maximum of Linux (CONFIG_NR_CPUS)

  /// Requires 0 <= number < kMax.
  void add(int number);
  /// Returns the lowest number in the set that is at least `from`; -1 if there is none.
  [[nodiscard]] int next(int from = 0) const;
  [[nodiscard]] int count() const;

 private:
  std::array<std::uint64_t, kMax / 64> words_{};
};

/// The processors that the calling thread may run on.
[[nodiscard]] Processors usable_processors();

/// Whether all ranks can run at the same time, each on its own processor. `ranks[r]` is the set that rank r
/// may run on.
[[nodiscard]] bool can_run_at_once(std::span<const Processors> ranks);

}  // namespace onehop::os
