// SPDX-License-Identifier: Apache-2.0
// What onehop stands on, each tried for real.
#pragma once

#include <vector>

#include "onehop/diagnose.h"

namespace onehop::cli {

/// Everything but the end-to-end test and the GPUs (onehop::diagnose_gpus). Takes well under a second; leaves
/// nothing behind.
[[nodiscard]] std::vector<Finding> check_machine();

}  // namespace onehop::cli
