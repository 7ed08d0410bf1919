// SPDX-License-Identifier: Apache-2.0
#include "bench/watchdog.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/deadline.h"

namespace onehop::cli {

/// Shared with the thread, which may outlive the watchdog.
struct Watchdog::State {
  State(Duration the_patience, LastWords words)
      : patience(the_patience), last_words(std::move(words)), deadline(Deadline::after(the_patience)) {}

  void watch() {
    std::unique_lock lock(mutex);
    while (!called_off) {
      if (deadline.expired()) break;
      const Deadline::Clock::time_point until = deadline.at();  // alive() may move it meanwhile
      changed.wait_until(lock, until);
    }
    if (called_off) return;
    const Error error =
        why ? *why
            : Error(ErrorCode::timeout, fmt::format("nothing was heard for {} s while {}; a GPU "
                                                    "or its driver is stuck",
                                                    patience.count() / 1000, doing));
    lock.unlock();
    last_words(error);
  }

  const Duration patience;
  const LastWords last_words;
  std::mutex mutex;
  std::condition_variable changed;
  Deadline deadline;
  std::string doing = "starting";
  std::optional<Error> why;
  bool called_off = false;
};

Watchdog::Watchdog(Duration patience, LastWords last_words)
    : state_(std::make_shared<State>(patience, std::move(last_words))) {
  // Detached: it may be needed until the process ends.
  std::thread([state = state_] { state->watch(); }).detach();
}

Watchdog::~Watchdog() {
  const std::lock_guard lock(state_->mutex);
  if (state_->why) return;
  state_->called_off = true;
  state_->changed.notify_all();
}

void Watchdog::alive(std::string_view doing) {
  const std::lock_guard lock(state_->mutex);
  if (state_->why) return;
  state_->doing = doing;
  state_->deadline = Deadline::after(state_->patience);
}

void Watchdog::expect_end(const Error& why, Duration grace) {
  const std::lock_guard lock(state_->mutex);
  if (state_->why) return;
  state_->why = why;
  state_->deadline = Deadline::after(grace);
  state_->changed.notify_all();
}

}  // namespace onehop::cli
