// SPDX-License-Identifier: Apache-2.0
// The table of collectives, inline, since every call looks into it many times.
#pragma once

#include <iterator>

#include "onehop/call.h"

namespace onehop {

/// Indexed by Collective.
inline constexpr CollectiveTraits kTraits[] = {
    {.name = "all_reduce",
     .text = "all-reduce",
     .in = Amount::block,
     .out = Amount::block,
     .reduces = true,
     .has_two_shot = true},
    {.name = "all_gather", .text = "all-gather", .in = Amount::block, .out = Amount::block_per_rank},
    {.name = "reduce_scatter",
     .text = "reduce-scatter",
     .in = Amount::block_per_rank,
     .out = Amount::block,
     .reduces = true},
    {.name = "broadcast",
     .text = "broadcast",
     .in = Amount::block,
     .out = Amount::block,
     .only_root_passes_in = true},
    {.name = "reduce",
     .text = "reduce",
     .in = Amount::block,
     .out = Amount::block,
     .only_root_gets_out = true,
     .reduces = true,
     .has_two_shot = true},
    {.name = "all_to_all", .text = "all-to-all", .in = Amount::block_per_rank, .out = Amount::block_per_rank},
    {.name = "all_to_all_v",
     .text = "all-to-all-v",
     .in = Amount::counted_by_rank,
     .out = Amount::counted_by_rank},
    {.name = "gather",
     .text = "gather",
     .in = Amount::block,
     .out = Amount::block_per_rank,
     .only_root_gets_out = true},
    {.name = "scatter",
     .text = "scatter",
     .in = Amount::block_per_rank,
     .out = Amount::block,
     .only_root_passes_in = true},
    {.name = "send", .text = "send", .in = Amount::block, .out = Amount::nothing},
    {.name = "recv", .text = "recv", .in = Amount::nothing, .out = Amount::block},
    {.name = "barrier", .text = "barrier", .in = Amount::nothing, .out = Amount::nothing},
};
static_assert(std::size(kTraits) == kCollectiveCount);

inline constexpr CollectiveTraits kUnknownCall{
    .name = "an unknown call", .text = "unknown", .in = Amount::nothing, .out = Amount::nothing};

/// Like traits_of(), but inline.
[[nodiscard]] constexpr const CollectiveTraits& inline_traits_of(Collective collective) {
  const auto number = static_cast<std::size_t>(collective);
  return number < std::size(kTraits) ? kTraits[number] : kUnknownCall;
}

}  // namespace onehop
