// One collective call on one rank on a GPU: what every collective does before it queues its kernels. Ranks do
// not meet on the host, unless ONEHOP_CHECK asks for it.
#pragma once

#include "collective/arguments.h"
#include "group/state.h"

namespace onehop {

/// Throws unless this rank's arguments are usable, and all ranks make the same call where they are compared.
void begin_device_call(Group::State& group, const Arguments& call, CallDefect defect);

/// Makes one call: `queue()` queues it and returns the algorithm it used. Calls of no bytes pass through it,
/// too.
template <class Queue>
Algorithm make_device_call(Group::State& group, const Arguments& call, CallDefect defect, Queue&& queue) {
  return group.call(to_text(call.kind), [&] {
    begin_device_call(group, call, defect);
    const Algorithm used = queue();
    group.count_usage(used);
    return used;
  });
}

}  // namespace onehop
