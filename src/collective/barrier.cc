// SPDX-License-Identifier: Apache-2.0
#include "onehop/group.h"

#include "base/log.h"
#include "collective/first_step.h"
#include "os/fault_point.h"

namespace onehop {

void Group::barrier() {
  barrier(timeout());
}

void Group::barrier(Duration timeout) {
  State& self = state();
  self.call("barrier", timeout, [&](os::CallDeadline& deadline) {
    os::fault_point("barrier", self.rank().value);
    const CallDefect defect = timeout.count() < 0 ? CallDefect::bad_timeout : CallDefect::none;
    first_step(
        self,
        {.kind = static_cast<std::uint8_t>(CallKind::barrier), .rejected = static_cast<std::uint8_t>(defect)},
        deadline, "barrier");
    log::debug("rank {} of '{}': barrier()", self.rank().value, self.options().name);
  });
}

}  // namespace onehop
