// SPDX-License-Identifier: Apache-2.0
#include "group_queue.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <thread>
#include <utility>

#include "onehop/group_call.h"

#include "base/check.h"
#include "driver.h"
#include "guard.h"

namespace onehop::nccl {
namespace {

struct QueuedCall {
  std::shared_ptr<Communicator> communicator;
  Call call;
  std::shared_ptr<const void> kept;
};

struct GroupQueue {
  int depth = 0;
  Result result = Result::success;  ///< of the first function that failed
  std::vector<SetUp> set_ups;
  std::vector<QueuedCall> calls;
};

thread_local GroupQueue t_queue;
/// A queue that held more calls gives its memory back.
constexpr std::size_t kMostKept = 64;

bool is_failure(Result result) {
  return result != Result::success && result != Result::in_progress;
}

void run_calls(const std::vector<QueuedCall>& calls) {
  GroupCall scope;
  for (const QueuedCall& each : calls) run(each.communicator->group(), each.call);
  scope.end();
}

/// The set-ups that run in one thread, in order.
using Chain = std::vector<const SetUp*>;

std::vector<Chain> to_chains(const std::vector<SetUp>& jobs) {
  std::vector<Chain> chains;
  for (const SetUp& job : jobs) {
    const auto same = std::ranges::find_if(chains, [&](const Chain& each) {
      return job.parent != nullptr && each.front()->parent == job.parent;
    });
    if (same != chains.end()) {
      same->push_back(&job);
    } else {
      chains.push_back({&job});
    }
  }
  return chains;
}

/// See set_up_or_queue().
void set_up(const std::vector<SetUp>& jobs) {
  const std::vector<Chain> chains = to_chains(jobs);
  std::vector<std::exception_ptr> errors(chains.size());
  const auto run_chain = [&](std::size_t i) {
    const RelaxedCapture relaxed;
    try {
      for (const SetUp* const each : chains[i]) each->run();
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  std::vector<std::jthread> threads;
  try {
    for (std::size_t i = 1; i < chains.size(); ++i) threads.emplace_back(run_chain, i);
  } catch (...) {
    // The ranks without a thread do not join: those that have one fail at their deadline.
    errors[0] = std::current_exception();
  }
  if (!chains.empty() && !errors[0]) run_chain(0);
  threads.clear();
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    for (const SetUp& job : jobs) job.undo();
    std::rethrow_exception(error);
  }
}

}  // namespace

Result group_start() noexcept {
  ++t_queue.depth;
  return Result::success;
}

Result group_end() noexcept {
  return group_end_after(Result::success);
}

Result group_end_after(Result of_nccl) noexcept {
  if (t_queue.depth == 0)
    return fail(Result::invalid_usage, "ncclGroupEnd: this thread has called no ncclGroupStart");
  if (t_queue.depth > 1) {
    (void)note_for_group(of_nccl);
    --t_queue.depth;
    return Result::success;
  }
  GroupQueue queue = std::exchange(t_queue, {});
  const bool refused = queue.result != Result::success;
  const bool nccl_failed = is_failure(of_nccl);
  if (refused || nccl_failed) {
    for (const SetUp& job : queue.set_ups) job.undo();
  }
  if (refused) return queue.result;
  const Result own = guarded("ncclGroupEnd", [&] {
    if (!queue.set_ups.empty() && !nccl_failed) set_up(queue.set_ups);
    if (!queue.calls.empty()) run_calls(queue.calls);
    return Result::success;
  });
  // Keeps the memory for the next group.
  queue.calls.clear();
  if (queue.calls.capacity() <= kMostKept && t_queue.calls.empty()) t_queue.calls.swap(queue.calls);
  return nccl_failed ? of_nccl : own;
}

Result group_drop() noexcept {
  if (t_queue.depth == 0 || --t_queue.depth > 0) return Result::success;
  const GroupQueue queue = std::exchange(t_queue, {});
  for (const SetUp& job : queue.set_ups) job.undo();
  return queue.result;
}

void set_up_or_queue(std::vector<SetUp> jobs) {
  if (t_queue.depth == 0) return set_up(jobs);
  std::ranges::move(jobs, std::back_inserter(t_queue.set_ups));
}

void call_or_queue(std::shared_ptr<Communicator> communicator, const Call& call,
                   std::shared_ptr<const void> kept) {
  if (t_queue.depth > 0) {
    t_queue.calls.push_back({std::move(communicator), call, std::move(kept)});
  } else {
    run(communicator->group(), call);
  }
}

Result note_for_group(Result result) noexcept {
  if (is_failure(result) && t_queue.depth > 0 && t_queue.result == Result::success) t_queue.result = result;
  return result;
}

}  // namespace onehop::nccl
