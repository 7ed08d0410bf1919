// SPDX-License-Identifier: Apache-2.0
#include "os/ancestor.h"

#include <fmt/core.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace onehop::os {
namespace {

// Deeper than any launcher's process tree; ends the walk if /proc contains a cycle.
constexpr int kMaxDepth = 64;

/// Fields of /proc/PID/stat, see proc(5).
struct Stat {
  std::string name;
  pid_t parent = 0;
  unsigned long long started = 0;  ///< clock ticks after boot
};

std::optional<Stat> read_stat(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  // "PID (NAME) STATE PPID ...". The name may contain anything, including parentheses.
  const std::size_t open = line.find('(');
  const std::size_t close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  Stat stat{.name = line.substr(open + 1, close - open - 1)};
  std::istringstream rest(line.substr(close + 1));
  std::string skipped;
  rest >> skipped >> stat.parent;
  constexpr int kBetween = 17;  // from field 5 to the start time, which is field 22
  for (int i = 0; i < kBetween; ++i) rest >> skipped;
  rest >> stat.started;
  if (!rest) return std::nullopt;
  return stat;
}

}  // namespace

std::optional<std::string> find_ancestor(std::string_view part) {
  pid_t pid = ::getppid();
  for (int depth = 0; depth < kMaxDepth && pid > 0; ++depth) {
    const std::optional<Stat> stat = read_stat(pid);
    if (!stat) return std::nullopt;
    if (stat->name.find(part) != std::string::npos) return fmt::format("{}/{}", pid, stat->started);
    pid = stat->parent;
  }
  return std::nullopt;
}

}  // namespace onehop::os
