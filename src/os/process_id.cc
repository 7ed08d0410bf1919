// SPDX-License-Identifier: Apache-2.0
#include "os/process_id.h"

#include <mutex>

#include "os/fork_guard.h"

namespace onehop::os {

Id process_id() {
  static std::mutex mutex;
  static Id id = random_id();
  static std::uint32_t generation = fork_generation();
  const std::lock_guard lock(mutex);
  if (generation != fork_generation()) {
    generation = fork_generation();
    id = random_id();
  }
  return id;
}

}  // namespace onehop::os
