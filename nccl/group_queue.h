// SPDX-License-Identifier: Apache-2.0
// What a thread has queued between ncclGroupStart and ncclGroupEnd.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "onehop/call.h"

#include "abi.h"
#include "communicator.h"

namespace onehop::nccl {

/// The set-up of a communicator.
struct SetUp {
  std::function<void()> run;
  std::function<void()> undo = [] {};  ///< after any set-up of the same group failed
  /// Set-ups with the same parent run one after another, in their order, which is the same on all ranks.
  const void* parent = nullptr;
};

Result group_start() noexcept;
/// At the outermost end: makes the queued set-ups, then the calls. If a function failed in the group, returns its result
/// and makes none of them.
Result group_end() noexcept;
/// The same after NCCL's part of the group has ended with `of_nccl`. If that failed, makes no set-ups, which need NCCL's
/// communicators, but the calls: the ranks of their communicators wait for each other, and may not know of NCCL's failure.
Result group_end_after(Result of_nccl) noexcept;

/// Ends the thread's group without making what is queued, if this is the outermost end, and returns the result of the first
/// function that failed in it.
Result group_drop() noexcept;

/// Makes all set-ups at the same time, each in a thread: one thread may own all ranks, which wait for each other. If one
/// fails, undoes all of them and throws the first error. At once, or at the end of the thread's group.
void set_up_or_queue(std::vector<SetUp> jobs);
/// At once, or at the end of the thread's group. Keeps `kept` until then.
void call_or_queue(std::shared_ptr<Communicator> communicator, const Call& call,
                   std::shared_ptr<const void> kept = nullptr);
/// Notes a result for the end of the thread's group, if it has one. Returns the result.
Result note_for_group(Result result) noexcept;

}  // namespace onehop::nccl
