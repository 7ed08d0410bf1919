// SPDX-License-Identifier: Apache-2.0
// A deadline for calls that have none: most calls of a GPU driver, and all of NCCL.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "onehop/error.h"
#include "onehop/types.h"

namespace onehop::cli {

/// Ends this process through `last_words` when it makes no progress for too long: the other ranks would wait for
/// a rank that is stuck in the driver. Thread-safe.
class Watchdog {
 public:
  using LastWords = std::function<void(const Error&)>;

  /// Starts to watch. `last_words` runs once, on its own thread, and should not return. Its Error is a timeout,
  /// or the error passed to expect_end().
  Watchdog(Duration patience, LastWords last_words);
  /// Stops watching, unless expect_end() was called: then it watches until the end of the process.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void alive(std::string_view doing);
  /// The process is about to end with this error and has `grace` to clean up. The first call counts.
  void expect_end(const Error& why, Duration grace);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace onehop::cli
