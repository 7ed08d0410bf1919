#include "group/process.h"

#include <mutex>

#include "os/fork_guard.h"

namespace onehop {

os::Id process_id() {
  static std::mutex mutex;
  static os::Id id = os::random_id();
  static std::uint32_t generation = os::fork_generation();
  const std::lock_guard lock(mutex);
  if (generation != os::fork_generation()) {
    generation = os::fork_generation();
    id = os::random_id();
  }
  return id;
}

}  // namespace onehop
