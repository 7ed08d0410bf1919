// SPDX-License-Identifier: Apache-2.0
// For calls that know no deadline: most of what asks a GPU's driver, and all of NCCL.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "onehop/error.h"
#include "onehop/types.h"

namespace onehop::cli {

/// Ends this process through `last_words` when it has not shown life for too long: a rank that is stuck in
/// the driver would keep all the others. Thread-safe.
class Watchdog {
 public:
  using LastWords = std::function<void(const Error&)>;

  /// From now on. `last_words` runs on a thread of its own, once, and should not return; what it is given
  /// says for how long nothing was heard, or what expect_end() was told.
  Watchdog(Duration patience, LastWords last_words);
  /// Calls it off, unless an end is expected: then it watches what is left of the process.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void alive(std::string_view doing);
  /// The process is about to end for this reason; it has `grace` to clean up. The first reason counts.
  void expect_end(const Error& why, Duration grace);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace onehop::cli
