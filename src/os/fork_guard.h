// SPDX-License-Identifier: Apache-2.0
// After fork() the child holds copies of every socket, so peers would not notice the parent's death, and both
// processes would write to one stream. The guard prevents that: in the child, each registered socket is
// replaced by /dev/null. The descriptor number stays valid, so destructors stay safe.
#pragma once

#include <cstdint>

namespace onehop::os {

/// The number of forks between this process and the one that loaded the library. An object created under
/// another value belongs to a parent process.
[[nodiscard]] std::uint32_t fork_generation() noexcept;

/// Keeps `fd` registered for the lifetime of this object. Declare it after the descriptor's owner, so that it
/// is destroyed first.
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
