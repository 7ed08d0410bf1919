// SPDX-License-Identifier: Apache-2.0
// Traits of each collective, in one table that all layers use.
#pragma once

#include <cstdint>

#include "onehop/types.h"

namespace onehop {

/// How much input a rank passes to a collective, or output it receives, in blocks of CollectiveCall::count
/// elements.
enum class Amount : std::uint8_t {
  nothing,
  block,            ///< one block
  block_per_rank,   ///< one block for every rank of the group
  counted_by_rank,  ///< one block for every rank, each with its own count (all_to_all_v)
};

struct CollectiveTraits {
  const char* name;              ///< name of the public function: "all_reduce"
  const char* text;              ///< name in commands and tuning tables: "all-reduce"
  const char* data_fault_point;  ///< where fault tests strike while data is in flight: "all_reduce.data"
  Amount in;
  Amount out;
  bool only_root_passes_in = false;
  bool only_root_gets_out = false;
  bool reduces = false;
  bool has_two_shot = false;  ///< the caller may choose the algorithm
};

/// Accepts any number, since numbers come from peers. The name for one that is out of range is "an unknown
/// call".
[[nodiscard]] const CollectiveTraits& traits_of(Collective collective);

/// Whether callers name a root. The peer of a send or recv does not count as one.
[[nodiscard]] constexpr bool has_root(const CollectiveTraits& traits) {
  return traits.only_root_passes_in || traits.only_root_gets_out;
}

/// Whether a collective only moves blocks of one size.
[[nodiscard]] constexpr bool moves_blocks(const CollectiveTraits& traits) {
  const auto has_blocks = [](Amount amount) {
    return amount == Amount::block || amount == Amount::block_per_rank;
  };
  return !traits.reduces && has_blocks(traits.in) && has_blocks(traits.out);
}

}  // namespace onehop
