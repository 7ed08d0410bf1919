// SPDX-License-Identifier: Apache-2.0
// One collective call on one rank on a GPU: what every collective does before it queues its kernels. Ranks do
// not meet on the host, unless ONEHOP_CHECK asks for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>

#include "collective/arguments.h"
#include "collective/call_log.h"
#include "group/state.h"

namespace onehop {

/// Throws unless this rank's arguments are usable, and all ranks make the same call where they are compared.
/// The other ranks hear of what this one refuses (DeviceProgress).
void begin_device_call(Group::State& group, const Arguments& call, CallDefect defect,
                       os::CallDeadline& deadline);

/// Makes one call: `queue()`, or `queue(deadline)`, queues it and returns the algorithm it used. Calls of no
/// bytes pass through it, too. `queue` may say in `how` what else there is to log of the algorithm.
template <class Queue>
Algorithm make_device_call(Group::State& group, const Arguments& call, CallDefect defect, Queue&& queue,
                           const std::string_view& how = {}) {
  const Duration timeout = call.timeout(group.options().timeout);
  return group.call(to_text(call.kind), timeout, [&](os::CallDeadline& deadline) {
    begin_device_call(group, call, defect, deadline);
    group.device()->begin_call(timeout);
    Algorithm used{};
    if constexpr (std::is_invocable_v<Queue, os::CallDeadline&>) {
      used = queue(deadline);
    } else {
      used = queue();
    }
    group.count_usage(used);
    log_call(group, call, used, how);
    return used;
  });
}

/// Where a call's output lies on all ranks.
struct SymmetricOutput {
  std::shared_ptr<const SymmetricBuffer::State> buffer;
  std::size_t offset = 0;
  std::uint64_t place = 0;  ///< names the buffer and the offset; never 0

  [[nodiscard]] std::byte* on(int r) const { return buffer->data[static_cast<std::size_t>(r)] + offset; }
};
/// For a call that promises it (CallOptions::symmetric), and of whose output `bytes` are written on some
/// rank. Where this rank's is not symmetric the group fails.
[[nodiscard]] SymmetricOutput find_symmetric_output(Group::State& group, const Arguments& call,
                                                    std::size_t bytes);

}  // namespace onehop
