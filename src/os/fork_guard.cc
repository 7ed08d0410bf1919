// SPDX-License-Identifier: Apache-2.0
#include "os/fork_guard.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace onehop::os {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<int> fds;
  std::atomic<std::uint32_t> generation{0};
};

Registry& registry();

// fork() runs these around itself, so the child never finds the mutex held by a thread it does not have.
void before_fork() {
  registry().mutex.lock();
}
void after_fork_in_parent() {
  registry().mutex.unlock();
}
void after_fork_in_child() {
  Registry& self = registry();
  self.generation.fetch_add(1, std::memory_order_relaxed);  // one thread exists here
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : self.fds) {
    // Out of descriptors there is no /dev/null to put there; closing at least lets the peers see the parent's
    // end.
    if (null < 0 || ::dup3(null, fd, O_CLOEXEC) < 0) (void)::close(fd);
  }
  if (null >= 0) (void)::close(null);
  self.fds.clear();
  self.mutex.unlock();
}

Registry& registry() {
  static Registry& instance = *[] {
    auto* made = new Registry;  // leaked on purpose: fork may come while statics are destroyed
    (void)::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return made;
  }();
  return instance;
}

}  // namespace

std::uint32_t fork_generation() noexcept {
  return registry().generation.load(std::memory_order_relaxed);
}

ForkGuard::ForkGuard(int fd) : fd_(fd) {
  const std::lock_guard lock(registry().mutex);
  registry().fds.push_back(fd);
}

ForkGuard::~ForkGuard() {
  Registry& self = registry();
  const std::lock_guard lock(self.mutex);
  const auto at = std::find(self.fds.begin(), self.fds.end(), fd_);
  if (at != self.fds.end()) self.fds.erase(at);
}

}  // namespace onehop::os
