// SPDX-License-Identifier: Apache-2.0
// Everything that the seed decides about one round of the chaos test. The scheduler is not included: a
// repeated round makes the same calls and strikes at the same time, but not always between the same two
// instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace onehop::fault {

/// SplitMix64: the same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0, std::uint64_t step = 0);
  [[nodiscard]] std::uint64_t next();
  /// From 0 to n - 1; n is not 0.
  [[nodiscard]] std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
  [[nodiscard]] bool one_in(std::size_t n) { return below(n) == 0; }
  /// From 0 to `most`; each order of magnitude is equally likely.
  [[nodiscard]] std::size_t size_up_to(std::size_t most);

 private:
  std::uint64_t state_;
};

struct Strike {
  int rank = 0;
  int signal = 0;             ///< SIGKILL, SIGSTOP, SIGSEGV or SIGABRT
  std::int64_t after_us = 0;  ///< since the previous strike; for the first, since the plan's `from_start`
};

struct ChaosPlan {
  ChaosPlan(std::uint64_t seed, std::uint64_t round);

  std::uint64_t seed;
  std::uint64_t round;
  int ranks = 2;
  bool tcp = false;
  bool from_start = false;  ///< the time counts from the start of the processes, not from the end of joining
  std::vector<Strike> strikes;

  [[nodiscard]] bool struck(int rank) const;
  [[nodiscard]] bool stops() const;
  [[nodiscard]] int survivors() const { return ranks - static_cast<int>(strikes.size()); }
  /// A lone survivor gets a newcomer: in a group of one it would talk to nobody.
  [[nodiscard]] int newcomers() const { return survivors() < 2 ? 1 : 0; }
  /// The rank that a survivor (or newcomer) has in the next group.
  [[nodiscard]] int next_rank(int rank) const;
  /// "4 ranks, file store, SIGKILL of rank 2 after 3.1 ms".
  [[nodiscard]] std::string text() const;
  /// Random numbers for step `step`, the same on all ranks.
  [[nodiscard]] Random step(std::uint64_t step) const { return Random(seed, round, step + 1); }
};

}  // namespace onehop::fault
