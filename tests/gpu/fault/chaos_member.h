// SPDX-License-Identifier: Apache-2.0
// A member process of the chaos program, which executes the tasks that it is given.
#pragma once

#include <string>

#include "gpu/fault/chaos_backend.h"
#include "gpu/fault/chaos_board.h"

namespace onehop::fault {

/// Executes the tasks of `slot` until it is told to end. Joins groups of at most `most` ranks over a file
/// store in `dir`.
void live_as_member(ChaosBoard& board, ChaosSlot& slot, ChaosBackend& backend, int most,
                    const std::string& dir);

}  // namespace onehop::fault
