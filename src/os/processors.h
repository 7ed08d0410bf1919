// SPDX-License-Identifier: Apache-2.0
// Which processors (hardware threads) ranks may run on, and whether each can have one of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace onehop::os {

/// A set of processors, by the kernel's numbers. Those are the machine's, so processes in different
/// containers can compare theirs. May lie in shared memory: zero bytes are the empty set.
class Processors {
 public:
  static constexpr int kMax = 8192;  ///< the most that Linux can be built for

  /// 0 <= number < kMax.
  void add(int number);
  /// The lowest number that is `from` or more; -1: there is none.
  [[nodiscard]] int next(int from = 0) const;
  [[nodiscard]] int count() const;

 private:
  std::array<std::uint64_t, kMax / 64> words_{};
};

/// Those that the calling thread may run on.
[[nodiscard]] Processors usable_processors();

/// Whether all ranks can run at the same time, each on a processor that no other rank uses. `ranks`: where
/// each may run.
[[nodiscard]] bool can_run_at_once(std::span<const Processors> ranks);

}  // namespace onehop::os
