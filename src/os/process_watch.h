// SPDX-License-Identifier: Apache-2.0
// Detects the death of the process at the other end of a Unix socket. The end of the socket shows it only if
// no other process holds a copy of the socket. A child created by the raw clone system call, which runs no
// fork handlers, keeps copies of all its parent's sockets.
#pragma once

#include <utility>

#include "os/unique_fd.h"

namespace onehop::os {

/// Move-only. `has_died` is thread-safe.
class ProcessWatch {
 public:
  /// Watches no process.
  ProcessWatch() = default;
  /// Watches the process that connected or listened at the other end of `socket` (for a socket pair: the
  /// process that created it). Watches no process if the kernel cannot identify it, if it is in a PID
  /// namespace that is not visible to this process, or if no descriptor is available.
  [[nodiscard]] static ProcessWatch of_peer(int socket);

  /// Another watch of the same process; watches no process if no descriptor is available.
  [[nodiscard]] ProcessWatch share() const;

  /// Returns false if the process lives or none is watched. A zombie has died; a stopped process has not.
  [[nodiscard]] bool has_died() const;
  [[nodiscard]] bool watches() const { return static_cast<bool>(pidfd_); }
  /// For poll(2): readable once the process has died. Negative if no process is watched.
  [[nodiscard]] int fd() const { return pidfd_.get(); }

 private:
  explicit ProcessWatch(UniqueFd pidfd) : pidfd_(std::move(pidfd)) {}
  UniqueFd pidfd_;
};

}  // namespace onehop::os
