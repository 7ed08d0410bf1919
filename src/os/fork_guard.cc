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

// fork() runs these handlers (pthread_atfork), so the child never inherits the mutex locked by a thread that
// it does not have.
void before_fork() {
  registry().mutex.lock();
}
void after_fork_in_parent() {
  registry().mutex.unlock();
}
void after_fork_in_child() {
  Registry& self = registry();
  self.generation.fetch_add(1, std::memory_order_relaxed);  // the child has a single thread here
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : self.fds) {
    // Without a free descriptor /dev/null cannot be opened. Closing the socket at least lets the peers see
    // the parent's end.
    if (null < 0 || ::dup3(null, fd, O_CLOEXEC) < 0) (void)::close(fd);
  }
  if (null >= 0) (void)::close(null);
  self.fds.clear();
  self.mutex.unlock();
}

Registry& registry() {
  static Registry& instance = *[] {
    auto* made = new Registry;  // deliberately leaked: fork may happen during static destruction
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
