// SPDX-License-Identifier: Apache-2.0
// What a thread has queued in its GroupCall.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "onehop/group_call.h"

#include "collective/check_call.h"
#include "group/state.h"

namespace onehop {

class GroupCall::Queue {
 public:
  /// The calling thread's; nullptr outside of scopes, and while the end of one makes what was queued.
  [[nodiscard]] static Queue* open();

  Algorithm add(Group& group, const CollectiveCall& call);
  /// A call that this rank refuses at the end, for `reason`; the other ranks hear `error`.
  Algorithm add_refusal(Group& group, const CollectiveCall& call, ArgumentError error, const Error& reason);

  [[nodiscard]] std::size_t size() const { return calls_.size(); }
  /// Drops the calls behind the first `size`.
  void truncate(std::size_t size);
  /// Makes all calls, as GroupCall::end promises. The queue is empty then.
  void run();

 private:
  struct Refusal {
    ArgumentError error;
    Error reason;
  };
  struct Call {
    std::shared_ptr<Group::State> group;
    CollectiveCall call;
    std::optional<Refusal> refusal;
  };
  /// All calls of one group.
  struct Batch;
  [[nodiscard]] static std::vector<Batch> sort(std::vector<Call> calls);

  std::vector<Call> calls_;
};

}  // namespace onehop
