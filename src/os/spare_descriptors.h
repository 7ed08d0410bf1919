// SPDX-License-Identifier: Apache-2.0
// Descriptors kept for the moment when there are no others: what must still be done then, such as telling the
// other ranks why this one fails, gives one of them up and takes its place.
#pragma once

#include <sys/eventfd.h>

#include <cstddef>
#include <mutex>
#include <vector>

#include "onehop/error.h"

#include "os/unique_fd.h"

namespace onehop::os {

/// Thread-safe.
class SpareDescriptors {
 public:
  /// Keeps fewer where there are fewer left.
  explicit SpareDescriptors(std::size_t count) : count_(count) { refill(); }

  /// Closes one, for its place. False when none is kept.
  bool give_up_one() {
    const std::lock_guard lock(mutex_);
    if (kept_.empty()) return false;
    kept_.pop_back();
    return true;
  }

  /// Takes back what was given up, as far as there is room.
  void refill() {
    const std::lock_guard lock(mutex_);
    while (kept_.size() < count_) {
      UniqueFd spare(::eventfd(0, EFD_CLOEXEC));
      if (!spare) return;
      kept_.push_back(std::move(spare));
    }
  }

  /// `open()`, once more for each spare descriptor while it throws Error{out_of_resources}.
  template <class Open>
  auto with_spares(Open&& open) {
    refill();
    while (true) {
      try {
        return open();
      } catch (const Error& error) {
        if (error.code() != ErrorCode::out_of_resources || !give_up_one()) throw;
      }
    }
  }

 private:
  const std::size_t count_;
  std::mutex mutex_;
  std::vector<UniqueFd> kept_;
};

}  // namespace onehop::os
