#include "onehop/group.h"

#include "collective/first_step.h"
#include "os/fault_point.h"

namespace onehop {

void Group::barrier() {
  barrier(timeout());
}

void Group::barrier(Duration timeout) {
  State& self = state();
  self.call("barrier", [&] {
    os::fault_point("barrier", self.rank().value);
    os::CallDeadline deadline(timeout);
    first_step(self, {.kind = static_cast<std::uint8_t>(CallKind::barrier)}, deadline, "barrier");
  });
}

}  // namespace onehop
