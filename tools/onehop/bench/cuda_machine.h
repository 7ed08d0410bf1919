// SPDX-License-Identifier: Apache-2.0
// What the GPUs of a run are.
#pragma once

#include "onehop/group.h"

#include "bench/bench.h"

namespace onehop::cli {

/// Collective. Rank 0 knows everything, the others the names.
[[nodiscard]] GpuMachine gpu_machine(Group& group);

}  // namespace onehop::cli
