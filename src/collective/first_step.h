// SPDX-License-Identifier: Apache-2.0
// The first step of every host call: say what is called, wait for everyone, compare.
#pragma once

#include <vector>

#include "collective/call.h"
#include "group/state.h"

namespace onehop {

/// Returns with all ranks in the same step and the same call; throws on every rank otherwise.
inline void first_step(Group::State& group, const host::Call& own, os::CallDeadline& deadline,
                       const char* phase) {
  host::Team& team = group.team();
  team.publish(&own);
  group.wait_for_all(deadline, phase);
  // The usual case costs one comparison per rank, of lines that have just arrived.
  for (int r = 0; r < team.size(); ++r) {
    const host::Call& call = team.call(r);
    if (is_same_call(call, own) && call.rejected == 0) continue;
    std::vector<const host::Call*> calls;
    for (int each = 0; each < team.size(); ++each) calls.push_back(&team.call(each));
    require_same_call(calls);
  }
}

}  // namespace onehop
