// SPDX-License-Identifier: Apache-2.0
// A process of the chaos program: what it does with the tasks that it is given.
#pragma once

#include <string>

#include "fault/cuda_chaos_board.h"
#include "fault/cuda_chaos_place.h"

namespace onehop::fault {

/// Makes the tasks of `slot` until it is told to end. Groups are joined over a file store in `dir`; they have
/// at most `most` ranks.
void live_as_member(ChaosBoard& board, ChaosSlot& slot, ChaosPlace& place, int most, const std::string& dir);

}  // namespace onehop::fault
