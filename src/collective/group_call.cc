// SPDX-License-Identifier: Apache-2.0
#include "collective/group_call.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "collective/backend.h"
#include "collective/lanes.h"
#include "collective/refuse.h"
#include "collective/run.h"
#include "collective/transfers.h"

namespace onehop {
namespace {

// A plain pointer, because every collective reads it.
thread_local constinit GroupCall::Queue* t_open = nullptr;
/// The queue of this thread's last scope, kept so that the next scope need not allocate.
thread_local std::unique_ptr<GroupCall::Queue> t_last;
/// A queue with room for more calls is not kept.
constexpr std::size_t kMostKept = 64;

}  // namespace

struct GroupCall::Queue::Batch {
  std::shared_ptr<Group::State> group;
  std::vector<CollectiveCall> transfers;
  std::vector<CollectiveCall> collectives;
  std::optional<Refusal> refusal;  ///< refusal of the last collective; nothing runs after it
  std::optional<Stream> stream;    ///< of the scope's first call of the group: all run there
  std::vector<Stream> others;      ///< the other streams of its calls
  bool waited = false;             ///< `stream` waits for them
  bool begun = false;
  bool ended = false;
  std::size_t next = 0;  ///< the first of `collectives` that has not run
  std::exception_ptr error;

  /// Whether calls share a launch must not depend on streams, which differ between ranks.
  void move_to_one_stream(CollectiveCall& call) {
    if (!stream) stream = call.stream;
    const Stream own = std::exchange(call.stream, *stream);
    const auto is_own = [&](Stream each) { return each.handle == own.handle; };
    if (!is_own(*stream) && std::ranges::none_of(others, is_own)) others.push_back(own);
  }
  [[nodiscard]] bool on_stream_of_thread() const {
    const CollectiveBackend& backend = CollectiveBackend::of(*group);
    const auto is_of_thread = [&](Stream each) {
      return backend.for_other_threads(each).handle != each.handle;
    };
    return (stream && is_of_thread(*stream)) || std::ranges::any_of(others, is_of_thread);
  }
  /// Before another thread runs the batch, where the handle of the calling thread's stream would mean another stream.
  void leave_thread() {
    const CollectiveBackend& backend = CollectiveBackend::of(*group);
    const auto replace = [&](Stream& each) { each = backend.for_other_threads(each); };
    if (stream) replace(*stream);
    std::ranges::for_each(others, replace);
    for (CollectiveCall& each : transfers) replace(each.stream);
    for (CollectiveCall& each : collectives) replace(each.stream);
  }
  /// Runs the transfers, or the collectives of one launch. The last step sets `ended`.
  void step() noexcept {
    try {
      if (!std::exchange(begun, true)) {
        wait_for_others();
        if (!transfers.empty()) run_transfers(*group, std::move(transfers));
      } else if (const auto left = std::span(collectives).subspan(next); left.size() > (refusal ? 1U : 0U)) {
        next += run_first(*group, left.first(left.size() - (refusal ? 1 : 0)));
      } else {
        ended = true;
        if (refusal) refuse_now(*group, collectives.back(), refusal->error, refusal->reason);
      }
    } catch (...) {
      ended = true;
      error = std::current_exception();
    }
    // After an error, too: whoever frees a call's memory on its own stream relies on it.
    if (ended) hold_others();
  }
  void run() noexcept {
    while (!ended) step();
  }
  void wait_for_others() {
    if (others.empty()) return;
    constexpr const char* kPhase = "the start of a GroupCall";
    group->call(kPhase, group->options().timeout, [&](os::CallDeadline&) {
      try {
        for (const Stream each : others) CollectiveBackend::of(*group).order_streams(*group, each, *stream);
      } catch (const Error& failure) {
        group->fail_call(failure, kPhase);  // whatever its cause, only this rank knows of it
      }
    });
    waited = true;
  }
  void hold_others() noexcept {
    if (!waited) return;
    try {
      for (const Stream each : others) CollectiveBackend::of(*group).order_streams(*group, *stream, each);
    } catch (...) {
      if (error == nullptr) error = std::current_exception();
    }
  }
  /// Called instead of running: tells the other ranks that no calls will follow.
  void give_up(const std::system_error& reason) noexcept {
    try {
      group->fail_call(
          Error(ErrorCode::out_of_resources, fmt::format("cannot start a thread: {}", reason.what())),
          "the end of a GroupCall");
    } catch (...) {
      error = std::current_exception();
    }
  }
};

GroupCall::Queue* GroupCall::Queue::open() {
  return t_open;
}

Algorithm GroupCall::Queue::add(Group& group, const CollectiveCall& call) {
  calls_.push_back({.group = group.state().shared_from_this(), .call = call, .refusal = {}});
  return Algorithm::none;
}

Algorithm GroupCall::Queue::add_refusal(Group& group, const CollectiveCall& call, ArgumentError error,
                                        const Error& reason) {
  calls_.push_back(
      {.group = group.state().shared_from_this(), .call = call, .refusal = Refusal{error, reason}});
  return Algorithm::none;
}

void GroupCall::Queue::truncate(std::size_t size) {
  if (size < calls_.size()) calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(size), calls_.end());
}

std::vector<GroupCall::Queue::Batch> GroupCall::Queue::sort(std::span<Call> calls) {
  std::vector<Batch> batches;
  for (Call& each : calls) {
    auto batch = std::ranges::find(batches, each.group, &Batch::group);
    if (batch == batches.end()) {
      batch = batches.emplace(batches.end());
      batch->group = std::move(each.group);
    }
    if (!each.refusal) batch->move_to_one_stream(each.call);
    if (is_transfer(each.call) && !each.refusal) {
      if (batch->transfers.empty()) batch->transfers.reserve(calls.size());
      batch->transfers.push_back(each.call);
    } else if (!batch->refusal) {
      batch->collectives.push_back(each.call);
      batch->refusal = std::move(each.refusal);
    }
  }
  return batches;
}

void GroupCall::Queue::run() {
  std::vector<Batch> batches = sort(calls_);
  calls_.clear();
  if (batches.size() == 1) {
    batches.front().run();
  } else {
    run_together(batches);
  }
  for (const Batch& batch : batches) {
    if (batch.error != nullptr) std::rethrow_exception(batch.error);
  }
}

void GroupCall::Queue::run_together(std::span<Batch> batches) {
  const auto waits_on_host = [](const Batch& batch) {
    return CollectiveBackend::of(*batch.group).waits_on_host(*batch.group);
  };
  std::vector<Batch*> waiting;
  std::vector<WaitingBatch> described;
  for (Batch& batch : batches) {
    if (!waits_on_host(batch)) continue;
    waiting.push_back(&batch);
    described.push_back({.group = batch.group->id(),
                         .device = batch.group->options().device,
                         .on_stream_of_thread = batch.on_stream_of_thread()});
  }
  const std::vector<Lane> lanes = to_lanes(described);
  const auto run_lane = [&waiting](const Lane& lane) {
    for (const std::size_t each : lane) waiting[each]->run();
  };
  std::vector<std::jthread> threads;
  for (const Lane& lane : std::span(lanes).subspan(lanes.empty() ? 0 : 1)) {
    for (const std::size_t each : lane) waiting[each]->leave_thread();
    try {
      threads.emplace_back([&run_lane, &lane] { run_lane(lane); });
    } catch (const std::system_error& no_thread) {
      for (const std::size_t each : lane) waiting[each]->give_up(no_thread);
    }
  }
  // A step of each in turn: the driver queues some thousand launches of a device, and then waits until one begins. If they
  // were one rank's, they would wait for another rank, whose turn would not come.
  std::vector<Batch*> queueing;
  for (Batch& batch : batches) {
    if (!waits_on_host(batch)) queueing.push_back(&batch);
  }
  while (!queueing.empty()) {
    for (Batch* const batch : queueing) batch->step();
    std::erase_if(queueing, [](const Batch* batch) { return batch->ended; });
  }
  if (!lanes.empty()) run_lane(lanes.front());
}

// --- the scope ---

GroupCall::GroupCall() {
  if (t_open == nullptr) {
    own_ = t_last != nullptr ? std::move(t_last) : std::make_unique<Queue>();
    t_open = own_.get();
  }
  queue_ = t_open;
  begin_ = queue_->size();
}

GroupCall::~GroupCall() {
  if (own_ == nullptr) {
    if (!ended_) queue_->truncate(begin_);
    return;
  }
  if (!ended_) t_open = nullptr;
  own_->truncate(0);  // of calls that no end() has run
  if (own_->capacity() <= kMostKept) t_last = std::move(own_);
}

void GroupCall::end() {
  require(!ended_ && t_open == queue_,
          "a GroupCall ends once, on the thread that it began on, and before the one around it");
  ended_ = true;
  if (own_ == nullptr) return;
  t_open = nullptr;
  own_->run();
}

}  // namespace onehop
