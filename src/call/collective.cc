// SPDX-License-Identifier: Apache-2.0
#include <iterator>

#include "onehop/call.h"

namespace onehop {
namespace {

using enum Amount;

/// Indexed by Collective.
constexpr CollectiveTraits kTraits[] = {
    {.name = "all_reduce",
     .text = "all-reduce",
     .in = block,
     .out = block,
     .reduces = true,
     .has_two_shot = true},
    {.name = "all_gather", .text = "all-gather", .in = block, .out = block_per_rank},
    {.name = "reduce_scatter", .text = "reduce-scatter", .in = block_per_rank, .out = block, .reduces = true},
    {.name = "broadcast", .text = "broadcast", .in = block, .out = block, .only_root_passes_in = true},
    {.name = "reduce",
     .text = "reduce",
     .in = block,
     .out = block,
     .only_root_gets_out = true,
     .reduces = true,
     .has_two_shot = true},
    {.name = "all_to_all", .text = "all-to-all", .in = block_per_rank, .out = block_per_rank},
    {.name = "all_to_all_v", .text = "all-to-all-v", .in = counted_by_rank, .out = counted_by_rank},
    {.name = "gather", .text = "gather", .in = block, .out = block_per_rank, .only_root_gets_out = true},
    {.name = "scatter", .text = "scatter", .in = block_per_rank, .out = block, .only_root_passes_in = true},
    {.name = "send", .text = "send", .in = block, .out = nothing},
    {.name = "recv", .text = "recv", .in = nothing, .out = block},
    {.name = "barrier", .text = "barrier", .in = nothing, .out = nothing},
};
static_assert(std::size(kTraits) == kCollectiveCount);

constexpr CollectiveTraits kUnknown{
    .name = "an unknown call", .text = "unknown", .in = nothing, .out = nothing};

}  // namespace

std::string_view to_string(Collective collective) {
  return traits_of(collective).text;
}

const CollectiveTraits& traits_of(Collective collective) {
  const auto number = static_cast<std::size_t>(collective);
  return number < std::size(kTraits) ? kTraits[number] : kUnknown;
}

}  // namespace onehop
