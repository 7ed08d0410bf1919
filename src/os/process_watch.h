// SPDX-License-Identifier: Apache-2.0
// Whether the process at the other end of a Unix socket is still there. The end of the socket says so only
// when no other process holds a copy of it; a child made by the raw clone system call, which runs no handlers
// of fork, keeps copies of all its parent's sockets.
#pragma once

#include <utility>

#include "os/unique_fd.h"

namespace onehop::os {

/// Move-only; `has_died` is thread-safe.
class ProcessWatch {
 public:
  /// Watches nobody.
  ProcessWatch() = default;
  /// Watches the process that connected, or that listened, at the other end of `socket` (of a socket pair:
  /// the one that made it). Watches nobody when the kernel cannot say who that is, when it is in a namespace
  /// of processes that this one cannot see, or when there are no descriptors left.
  [[nodiscard]] static ProcessWatch of_peer(int socket);

  /// Another watch of the same process; of nobody when there are no descriptors left.
  [[nodiscard]] ProcessWatch share() const;

  /// False: it lives, or nobody is watched. A zombie has died, a stopped process has not.
  [[nodiscard]] bool has_died() const;
  [[nodiscard]] bool watches() const { return static_cast<bool>(pidfd_); }
  /// For poll(2): readable once the process has died. Negative when nobody is watched.
  [[nodiscard]] int fd() const { return pidfd_.get(); }

 private:
  explicit ProcessWatch(UniqueFd pidfd) : pidfd_(std::move(pidfd)) {}
  UniqueFd pidfd_;
};

}  // namespace onehop::os
