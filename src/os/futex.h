// SPDX-License-Identifier: Apache-2.0
// Sleeping on a word of shared memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "onehop/types.h"

namespace onehop::os {

/// Sleeps while `word` holds `expected`, at most for `timeout`. Returns on a wake-up, a changed word, a
/// signal or the timeout, so the caller must recheck its condition. Works across processes.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Duration timeout);
/// Wakes all threads that sleep on `word`.
void futex_wake_all(std::atomic<std::uint32_t>& word);

}  // namespace onehop::os
