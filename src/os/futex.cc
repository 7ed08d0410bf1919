// SPDX-License-Identifier: Apache-2.0
#include "os/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace onehop::os {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "shared between processes");

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Duration timeout) {
  const timespec relative{.tv_sec = timeout.count() / 1000, .tv_nsec = (timeout.count() % 1000) * 1'000'000};
  // No FUTEX_PRIVATE_FLAG, because processes share the word. The result is ignored: the caller rechecks in
  // every case.
  (void)::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &relative, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  (void)::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace onehop::os
