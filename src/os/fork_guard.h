// SPDX-License-Identifier: Apache-2.0
// What fork() does to a process that talks to peers: the child holds copies of every socket, so peers would
// not notice the parent's death, and both would write to one stream. The guard ends that: in the child each
// registered socket becomes /dev/null (the number stays valid, so destructors stay safe).
#pragma once

#include <cstdint>

namespace onehop::os {

/// Counts forks along the line of ancestors since the library was loaded. An object made under another value
/// belongs to a parent process.
[[nodiscard]] std::uint32_t fork_generation() noexcept;

/// Keeps `fd` registered for its own lifetime. Declare it after (so that it goes before) the descriptor's
/// owner.
class ForkGuard {
 public:
  explicit ForkGuard(int fd);
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
  ~ForkGuard();

 private:
  int fd_;
};

}  // namespace onehop::os
