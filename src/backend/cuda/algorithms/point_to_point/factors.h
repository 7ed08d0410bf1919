// SPDX-License-Identifier: Apache-2.0
// Reductions in which every rank's input is multiplied by a factor of that rank (CallOptions::own_factor).
#pragma once

#include "backend/cuda/launcher.h"

namespace onehop::cuda {

/// Where a rank has the factors of all.
extern const ScratchRegion kFactorScratch;

/// Sends this rank's factor to all ranks, and receives theirs. Returns the call as the kernels of reductions make it: a
/// kWeightedSum with these factors.
[[nodiscard]] CollectiveCall exchange_factors(Launcher& launcher, const CollectiveCall& call);

}  // namespace onehop::cuda
