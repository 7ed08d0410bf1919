// SPDX-License-Identifier: Apache-2.0
// Descriptors reserved for when the process has run out. Operations that must still succeed then, such as
// telling the other ranks why this one fails, release one of them and use its slot.
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
  /// Reserves fewer if fewer are available.
  explicit SpareDescriptors(std::size_t count) : count_(count) { refill(); }

  /// Closes one to free its slot. Returns false if none is reserved.
  bool give_up_one() {
    const std::lock_guard lock(mutex_);
    if (kept_.empty()) return false;
    kept_.pop_back();
    return true;
  }

  /// Reserves the released descriptors again, as far as they are available.
  void refill() {
    const std::lock_guard lock(mutex_);
    while (kept_.size() < count_) {
      UniqueFd spare(::eventfd(0, EFD_CLOEXEC));
      if (!spare) return;
      kept_.push_back(std::move(spare));
    }
  }

  /// Calls `open()`, and repeats it once per spare descriptor while it throws Error{out_of_resources}.
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
