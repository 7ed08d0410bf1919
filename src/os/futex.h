// SPDX-License-Identifier: Apache-2.0
// Sleeping on a word of shared memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "onehop/types.h"

namespace onehop::os {

/// Sleeps while `word` holds `expected`, at most `timeout`. Returns on a wake, a changed word, a signal or
/// the timeout: the caller checks its condition again in every case. Works across processes.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Duration timeout);
/// Wakes everyone who sleeps on `word`.
void futex_wake_all(std::atomic<std::uint32_t>& word);

}  // namespace onehop::os
