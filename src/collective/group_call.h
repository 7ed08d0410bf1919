// SPDX-License-Identifier: Apache-2.0
// What a thread has queued in its GroupCall.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "onehop/collectives.h"
#include "onehop/group_call.h"

#include "collective/all_reduce.h"
#include "collective/transfers.h"
#include "group/state.h"

namespace onehop {

class GroupCall::Queue {
 public:
  /// The calling thread's; nullptr outside of scopes, and while the end of one makes what was queued.
  [[nodiscard]] static Queue* open();

  /// A collective: `make` calls it again, at the end. For its first line:
  ///
  ///   if (auto* const queue = GroupCall::Queue::open())
  ///     return queue->add(group, [=, &group] { all_gather(group, in, out, count, type, stream, options); });
  Algorithm add(Group& group, std::function<void()> make);
  /// Those that follow each other, with no other collective of the group between, may go together.
  Algorithm add(Group& group, const AllReduceCall& call);
  Algorithm add(Group& group, const Transfer& transfer, Duration timeout, Stream stream);

  [[nodiscard]] std::size_t size() const { return calls_.size(); }
  /// Drops the calls behind the first `size`.
  void truncate(std::size_t size);
  /// Makes all calls, as GroupCall::end promises. The queue is empty then.
  void run();

 private:
  using Make = std::function<void()>;
  struct PendingTransfer {
    Transfer transfer;
    Duration timeout{};
    Stream stream;
  };
  struct Call {
    std::shared_ptr<Group::State> group;
    std::variant<PendingTransfer, AllReduceCall, Make> what;
  };
  /// All calls of one group.
  struct Batch;
  [[nodiscard]] static std::vector<Batch> sort(std::vector<Call> calls);

  std::vector<Call> calls_;
};

}  // namespace onehop
