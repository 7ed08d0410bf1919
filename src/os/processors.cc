// SPDX-License-Identifier: Apache-2.0
#include "os/processors.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <vector>

namespace onehop::os {
namespace {

/// An assignment of processors to ranks: a matching in the bipartite graph of ranks and the processors they
/// may use.
class Assignment {
 public:
  explicit Assignment(std::span<const Processors> ranks)
      : ranks_(ranks), owners_(Processors::kMax, kNobody) {}

  /// Assigns a processor to `rank`, and moves other ranks if necessary. Returns false, and changes nothing,
  /// if that is impossible.
  bool add(std::size_t rank) {
    tried_ = {};
    return assign(rank);
  }

 private:
  static constexpr std::size_t kNobody = ~std::size_t{0};

  /// Finds an augmenting path; the recursion depth is at most the number of ranks.
  bool assign(std::size_t rank) {
    const Processors& usable = ranks_[rank];
    for (int each = usable.next(); each >= 0; each = usable.next(each + 1)) {
      const auto index = static_cast<std::size_t>(each);
      if (tried_[index]) continue;
      tried_[index] = true;
      if (owners_[index] != kNobody && !assign(owners_[index])) continue;
      owners_[index] = rank;
      return true;
    }
    return false;
  }

  std::span<const Processors> ranks_;
  std::vector<std::size_t> owners_;
  std::array<bool, Processors::kMax> tried_{};
};

}  // namespace

void Processors::add(int number) {
  const auto index = static_cast<std::size_t>(number);
  words_[index / 64] |= std::uint64_t{1} << index % 64;
}

int Processors::next(int from) const {
  for (auto index = static_cast<std::size_t>(from); index < kMax; index = (index / 64 + 1) * 64) {
    const std::uint64_t rest = words_[index / 64] >> index % 64;
    if (rest != 0) return static_cast<int>(index) + std::countr_zero(rest);
  }
  return -1;
}

int Processors::count() const {
  int sum = 0;
  for (const std::uint64_t word : words_) sum += std::popcount(word);
  return sum;
}

Processors usable_processors() {
  Processors usable;
  std::array<cpu_set_t, Processors::kMax / CPU_SETSIZE> sets{};
  if (::sched_getaffinity(0, sizeof sets, sets.data()) == 0) {
    for (int each = 0; each < Processors::kMax; ++each) {
      const cpu_set_t& set = sets[static_cast<std::size_t>(each / CPU_SETSIZE)];
      if (CPU_ISSET(each % CPU_SETSIZE, &set)) usable.add(each);
    }
  } else {
    // A system call filter forbids it; assume that this rank is not bound.
    const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
    for (int each = 0; each < std::clamp<long>(online, 1, Processors::kMax); ++each) usable.add(each);
  }
  return usable;
}

bool can_run_at_once(std::span<const Processors> ranks) {
  Assignment assignment(ranks);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!assignment.add(rank)) return false;
  }
  return true;
}

}  // namespace onehop::os
