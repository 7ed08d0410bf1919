// SPDX-License-Identifier: Apache-2.0
// How a group shares memory, decided from what every rank asks for and what works there.
#pragma once

#include <string>
#include <vector>

#include "onehop/types.h"

#include "group/messages.h"

namespace onehop {

struct ShareChoice {
  ShareBy share_by = ShareBy::automatic;
  std::string refusal{};  ///< why there is none; empty when there is
};

/// How these ranks share memory: in the way that one of them names, or else by the first of fabric handles,
/// descriptors and CUDA IPC that works on all of them. Pure.
[[nodiscard]] ShareChoice choose_share(const std::vector<Hello>& hellos);

}  // namespace onehop
