// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/point_to_point/factors.h"

#include "backend/cuda/algorithms/point_to_point/channel_launch.h"

namespace onehop::cuda {
namespace {

/// Of the longest element type.
constexpr std::size_t kFactorBytes = 8;

}  // namespace

/// Those of all ranks, as elements of the call's type; and behind them a copy of the own one, if the host had it.
const ScratchRegion kFactorScratch{
    [](const GroupShape& /*shape*/) { return (kMaxDevices + 1) * kFactorBytes; }};

CollectiveCall exchange_factors(Launcher& launcher, const CollectiveCall& call) {
  std::byte* const factors = launcher.scratch(kFactorScratch, launcher.rank());
  const void* own = call.options.own_factor;
  if (call.own_factor) {
    std::byte* const copy = factors + kMaxDevices * kFactorBytes;
    launcher.write(copy, static_cast<std::uint32_t>(*call.own_factor));
    if (call.element_bytes() > 4)
      launcher.write(copy + 4, static_cast<std::uint32_t>(*call.own_factor >> 32));
    own = copy;
  }
  CollectiveCall exchanged{{.collective = Collective::all_gather,
                            .in = own,
                            .out = factors,
                            .count = 1,
                            .type = call.type,
                            .stream = call.stream},
                           call.rank,
                           call.ranks};
  exchange(launcher, transfers_of(exchanged), DeviceFault::phase_of(call.collective));
  CollectiveCall weighted = call;
  weighted.op = kWeightedSum;
  weighted.options.own_factor = factors;
  return weighted;
}

}  // namespace onehop::cuda
