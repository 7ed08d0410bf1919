// SPDX-License-Identifier: Apache-2.0
// The calls that a thread has queued in its GroupCall.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "onehop/group_call.h"

#include "call/check_call.h"
#include "group/state.h"

namespace onehop {

class GroupCall::Queue {
 public:
  /// The calling thread's queue. nullptr outside of scopes, and while the end of a scope runs the queued
  /// calls.
  [[nodiscard]] static Queue* open();

  Algorithm add(Group& group, const CollectiveCall& call);
  /// Adds a call that this rank refuses when the scope ends, for `reason`; the other ranks receive `error`.
  Algorithm add_refusal(Group& group, const CollectiveCall& call, ArgumentError error, const Error& reason);

  [[nodiscard]] std::size_t size() const { return calls_.size(); }
  [[nodiscard]] std::size_t capacity() const { return calls_.capacity(); }
  /// Drops the calls after the first `size`.
  void truncate(std::size_t size);
  /// Runs all calls as GroupCall::end promises, and leaves the queue empty.
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
  [[nodiscard]] static std::vector<Batch> sort(std::span<Call> calls);
  /// Runs the calls of several groups, which may wait for each other. Each batch keeps its error.
  static void run_together(std::span<Batch> batches);

  std::vector<Call> calls_;
};

}  // namespace onehop
