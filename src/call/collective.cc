// SPDX-License-Identifier: Apache-2.0
#include "call/collective.h"

#include <iterator>

namespace onehop {
namespace {

using enum Amount;

/// Indexed by Collective.
constexpr CollectiveTraits kTraits[] = {
    {.name = "all_reduce",
     .text = "all-reduce",
     .data_fault_point = "all_reduce.data",
     .in = block,
     .out = block,
     .reduces = true,
     .has_two_shot = true},
    {.name = "all_gather",
     .text = "all-gather",
     .data_fault_point = "all_gather.data",
     .in = block,
     .out = block_per_rank},
    {.name = "reduce_scatter",
     .text = "reduce-scatter",
     .data_fault_point = "reduce_scatter.data",
     .in = block_per_rank,
     .out = block,
     .reduces = true},
    {.name = "broadcast",
     .text = "broadcast",
     .data_fault_point = "broadcast.data",
     .in = block,
     .out = block,
     .only_root_passes_in = true},
    {.name = "reduce",
     .text = "reduce",
     .data_fault_point = "reduce.data",
     .in = block,
     .out = block,
     .only_root_gets_out = true,
     .reduces = true,
     .has_two_shot = true},
    {.name = "all_to_all",
     .text = "all-to-all",
     .data_fault_point = "all_to_all.data",
     .in = block_per_rank,
     .out = block_per_rank},
    {.name = "all_to_all_v",
     .text = "all-to-all-v",
     .data_fault_point = "all_to_all_v.data",
     .in = counted_by_rank,
     .out = counted_by_rank},
    {.name = "gather",
     .text = "gather",
     .data_fault_point = "gather.data",
     .in = block,
     .out = block_per_rank,
     .only_root_gets_out = true},
    {.name = "scatter",
     .text = "scatter",
     .data_fault_point = "scatter.data",
     .in = block_per_rank,
     .out = block,
     .only_root_passes_in = true},
    {.name = "send", .text = "send", .data_fault_point = "send.data", .in = block, .out = nothing},
    {.name = "recv", .text = "recv", .data_fault_point = "recv.data", .in = nothing, .out = block},
    {.name = "barrier", .text = "barrier", .data_fault_point = "", .in = nothing, .out = nothing},
};
static_assert(std::size(kTraits) == kCollectiveCount);

constexpr CollectiveTraits kUnknown{
    .name = "an unknown call", .text = "unknown", .data_fault_point = "", .in = nothing, .out = nothing};

}  // namespace

std::string_view to_string(Collective collective) {
  return traits_of(collective).text;
}

const CollectiveTraits& traits_of(Collective collective) {
  const auto number = static_cast<std::size_t>(collective);
  return number < std::size(kTraits) ? kTraits[number] : kUnknown;
}

}  // namespace onehop
