// SPDX-License-Identifier: Apache-2.0
#include "group/failure_watch.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "base/log.h"

namespace onehop {

FailureWatch& FailureWatch::instance() {
  // No destructors: they would wait for the device, or for threads that hang.
  static FailureWatch watch([] { std::_Exit(EXIT_FAILURE); });
  return watch;
}

FailureWatch::~FailureWatch() {
  if (generation_ != os::fork_generation()) forget_parent();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

/// The child of a fork has no such thread, so there is nothing to join; and the thread may have held the mutex.
void FailureWatch::forget_parent() {
  new (&thread_) std::thread;
  new (&mutex_) std::mutex;
  new (&wake_) std::condition_variable;
  new (&entries_) std::vector<Entry>;
  generation_ = os::fork_generation();
}

void FailureWatch::add(const std::shared_ptr<WatchedGroup>& watched, std::optional<Duration> grace) {
  if (generation_ != os::fork_generation()) forget_parent();
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& each) {
    const std::shared_ptr<WatchedGroup> other = each.watched.lock();
    return other == nullptr || other == watched;
  });
  entries_.push_back({.watched = watched, .grace = grace, .end = {}});
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

bool FailureWatch::look(Entry& entry) {
  const std::shared_ptr<WatchedGroup> watched = entry.watched.lock();
  if (watched == nullptr || watched->ended()) return false;
  const std::optional<Error> failure = watched->unreported();
  if (!failure) return !entry.end;  // heard: whoever knows acts
  if (!entry.end) {
    entry.end = Deadline::after(entry.grace.value_or(Duration{0}));
    log::error("{}: the group has failed: {}", watched->title(), failure->message());
  }
  if (!entry.grace) return false;
  if (!entry.end->expired()) return true;
  log::error("{}: this process ends, because no call has reported the failure within {} ms", watched->title(),
             entry.grace->count());
  end_process_();
  return false;
}

void FailureWatch::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kInterval, [this] { return stop_; })) {
    std::erase_if(entries_, [this](Entry& each) { return !look(each); });
  }
}

}  // namespace onehop
