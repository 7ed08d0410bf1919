// SPDX-License-Identifier: Apache-2.0
#include "collective/group_call.h"

#include <algorithm>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"

namespace onehop {
namespace {

// A plain pointer: collectives look at it in every call.
thread_local constinit GroupCall::Queue* t_open = nullptr;

}  // namespace

struct GroupCall::Queue::Batch {
  std::shared_ptr<Group::State> group;
  std::vector<Transfer> transfers;
  Duration timeout{0};  ///< the longest: they wait together
  Stream stream;
  std::vector<std::variant<std::vector<AllReduceCall>, Make>> collectives;
  std::exception_ptr error;

  /// Whether a call waits for other ranks on the host.
  [[nodiscard]] bool waits() const { return group->device() == nullptr || group->checks_calls(); }

  void run() noexcept {
    try {
      if (!transfers.empty()) make_transfers(*group, std::move(transfers), timeout, stream);
      for (const auto& collective : collectives) {
        if (const auto* const all_reduces = std::get_if<std::vector<AllReduceCall>>(&collective)) {
          make_all_reduces(*group, *all_reduces);
        } else {
          std::get<Make>(collective)();
        }
      }
    } catch (...) {
      error = std::current_exception();
    }
  }
  /// Instead: tells the other ranks that nothing will come.
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

Algorithm GroupCall::Queue::add(Group& group, std::function<void()> make) {
  calls_.push_back({.group = group.state().shared_from_this(), .what = std::move(make)});
  return Algorithm::none;
}

Algorithm GroupCall::Queue::add(Group& group, const AllReduceCall& call) {
  calls_.push_back({.group = group.state().shared_from_this(), .what = call});
  return Algorithm::none;
}

Algorithm GroupCall::Queue::add(Group& group, const Transfer& transfer, Duration timeout, Stream stream) {
  Group::State& state = group.state();
  if (state.device() != nullptr) {
    // One launch moves them all.
    const auto other_stream = std::find_if(calls_.begin(), calls_.end(), [&](const Call& each) {
      const auto* const before = std::get_if<PendingTransfer>(&each.what);
      return each.group.get() == &state && before != nullptr && before->stream.handle != stream.handle;
    });
    require(other_stream == calls_.end(),
            "{}: this GroupCall has transfers of rank {} on another stream; use a GroupCall for each stream",
            to_text(transfer.kind), state.rank().value);
  }
  calls_.push_back({.group = state.shared_from_this(),
                    .what = PendingTransfer{.transfer = transfer, .timeout = timeout, .stream = stream}});
  return Algorithm::none;
}

void GroupCall::Queue::truncate(std::size_t size) {
  if (size < calls_.size()) calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(size), calls_.end());
}

std::vector<GroupCall::Queue::Batch> GroupCall::Queue::sort(std::vector<Call> calls) {
  std::vector<Batch> batches;
  for (Call& call : calls) {
    auto batch = std::find_if(batches.begin(), batches.end(),
                              [&](const Batch& each) { return each.group == call.group; });
    if (batch == batches.end()) {
      batches.emplace_back().group = std::move(call.group);
      batch = batches.end() - 1;
    }
    if (const auto* const transfer = std::get_if<PendingTransfer>(&call.what)) {
      batch->transfers.push_back(transfer->transfer);
      batch->timeout = std::max(batch->timeout, transfer->timeout);
      batch->stream = transfer->stream;
    } else if (const auto* const all_reduce = std::get_if<AllReduceCall>(&call.what)) {
      auto* last = batch->collectives.empty()
                       ? nullptr
                       : std::get_if<std::vector<AllReduceCall>>(&batch->collectives.back());
      if (last == nullptr) {
        last = &std::get<std::vector<AllReduceCall>>(
            batch->collectives.emplace_back(std::vector<AllReduceCall>()));
      }
      last->push_back(*all_reduce);
    } else {
      batch->collectives.emplace_back(std::get<Make>(std::move(call.what)));
    }
  }
  return batches;
}

void GroupCall::Queue::run() {
  std::vector<Batch> batches = sort(std::exchange(calls_, {}));
  {
    // Ranks that wait may wait for each other. This thread has one of them, too.
    std::vector<std::jthread> threads;
    Batch* own = nullptr;
    for (Batch& batch : batches) {
      if (!batch.waits()) continue;
      if (own == nullptr) {
        own = &batch;
        continue;
      }
      try {
        threads.emplace_back([&batch] { batch.run(); });
      } catch (const std::system_error& no_thread) {
        batch.give_up(no_thread);
      }
    }
    for (Batch& batch : batches) {
      if (!batch.waits()) batch.run();
    }
    if (own != nullptr) own->run();
  }
  for (const Batch& batch : batches) {
    if (batch.error != nullptr) std::rethrow_exception(batch.error);
  }
}

// --- the scope ---

GroupCall::GroupCall() {
  if (t_open == nullptr) {
    own_ = std::make_unique<Queue>();
    t_open = own_.get();
  }
  queue_ = t_open;
  begin_ = queue_->size();
}

GroupCall::~GroupCall() {
  if (ended_) return;
  if (own_ != nullptr) {
    t_open = nullptr;
  } else {
    queue_->truncate(begin_);
  }
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
