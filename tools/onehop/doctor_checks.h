// SPDX-License-Identifier: Apache-2.0
// Tries every mechanism that onehop depends on.
#pragma once

#include <vector>

#include "onehop/diagnose.h"

namespace onehop::cli {

/// All checks but the end-to-end test and the GPUs (onehop::diagnose_gpus). Takes well under a second and
/// leaves nothing behind.
[[nodiscard]] std::vector<Finding> check_machine();

}  // namespace onehop::cli
