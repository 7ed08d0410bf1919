#include "os/host_id.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/check.h"

namespace onehop::os {

std::string boot_id() {
  constexpr const char* kPath = "/proc/sys/kernel/random/boot_id";
  std::ifstream file(kPath);
  std::string id;
  if (!std::getline(file, id) || id.empty()) {
    fail(ErrorCode::unsupported, "cannot read {}, which tells whether ranks share a machine; mount /proc",
         kPath);
  }
  return id;
}

std::string hostname() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // Fails only on machines with more than 1024 processors, where the exact number matters least.
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace onehop::os
