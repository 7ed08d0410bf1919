// SPDX-License-Identifier: Apache-2.0
// Decides how a group shares memory, from what every rank requests and supports.
#pragma once

#include <string>
#include <vector>

#include "onehop/types.h"

#include "group/messages.h"

namespace onehop {

struct ShareChoice {
  ShareBy share_by = ShareBy::automatic;
  std::string refusal{};  ///< the reason if there is no choice; else empty
};

/// How these ranks share memory: as one of them requests, or else by the first of fabric handles, descriptors
/// and CUDA IPC that works on all of them. Pure.
[[nodiscard]] ShareChoice choose_share(const std::vector<Hello>& hellos);

}  // namespace onehop
