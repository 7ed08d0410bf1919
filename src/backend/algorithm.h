// SPDX-License-Identifier: Apache-2.0
// What the choice of an algorithm needs to know about it. Both backends list theirs.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "onehop/call.h"
#include "onehop/tuning.h"
#include "onehop/types.h"

#include "call/traits.h"

namespace onehop {

class CollectiveSet {
 public:
  constexpr CollectiveSet() = default;
  constexpr CollectiveSet(std::initializer_list<Collective> collectives) {
    for (const Collective each : collectives) bits_ |= 1u << static_cast<unsigned>(each);
  }
  static constexpr CollectiveSet all() {
    CollectiveSet set;
    set.bits_ = ~0u;
    return set;
  }
  [[nodiscard]] constexpr bool contains(Collective collective) const {
    return (bits_ >> static_cast<unsigned>(collective) & 1u) != 0;
  }

 private:
  std::uint32_t bits_ = 0;
};

struct AlgorithmTraits {
  std::string_view name{};               ///< as tuning tables name it; empty: none does
  Algorithm kind = Algorithm::one_shot;  ///< as callers name it
  CollectiveSet collectives{};           ///< those it carries
  bool moves_blocks = false;             ///< it also carries all that only move blocks of one size
  CollectiveSet without_choice{};        ///< it alone carries these, so tables do not name it for them
  TypeClass types = TypeClass::any;      ///< what it can carry
  Buffers buffers = Buffers::any;        ///< symmetric: it writes into the peers' outputs
  int least_ranks = 2;
  int most_ranks = kMaxHostRanks;
  bool takes_chunk = false;  ///< which fields of an AlgorithmChoice have a meaning
  bool takes_blocks = false;
  bool takes_threads = false;

  [[nodiscard]] bool carries(Collective collective, TypeClass of_types, Buffers of_buffers) const {
    return (collectives.contains(collective) ||
            (moves_blocks && inline_traits_of(collective).moves_blocks())) &&
           (types == TypeClass::any || of_types == types) &&
           (buffers == Buffers::any || of_buffers == buffers);
  }
  [[nodiscard]] bool takes(int ranks) const { return ranks >= least_ranks && ranks <= most_ranks; }
};

/// All algorithms of a backend.
[[nodiscard]] std::vector<const AlgorithmTraits*> algorithms(Backend backend);

namespace host {
[[nodiscard]] std::vector<TuningRow> default_rows(int ranks);
}  // namespace host

namespace cuda {
[[nodiscard]] std::vector<TuningRow> default_rows(int ranks, Links links);
/// The most threads that a block of an algorithm's kernel can have, for sums of this many ranks.
[[nodiscard]] unsigned max_block_threads(int ranks);
}  // namespace cuda

}  // namespace onehop
