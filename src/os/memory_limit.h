// SPDX-License-Identifier: Apache-2.0
// How much memory the kernel would still give, by the limits that kill instead of failing: of the machine and
// of the memory cgroups (v1 and v2) that this process is in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace onehop::os {

/// A hierarchy of memory cgroups, seen from one process.
struct MemoryCgroup {
  std::string directory;  ///< of the process's own cgroup
  std::string top;        ///< of the highest one that can be seen: `directory` or above it
  bool unified = false;   ///< cgroup v2

  bool operator==(const MemoryCgroup& other) const = default;
};

/// From the texts of /proc/self/cgroup and /proc/self/mountinfo. Pure. Lines that cannot be understood are
/// passed over. At most one of each version.
[[nodiscard]] std::vector<MemoryCgroup> parse_memory_cgroups(std::string_view cgroups,
                                                             std::string_view mountinfo);

struct MemoryRoom {
  std::size_t left = SIZE_MAX;  ///< bytes, without swapping; SIZE_MAX: nobody says
  std::string where{};          ///< "the machine", or "cgroup <directory>"
};

/// Thread-safe.
class MemoryLimits {
 public:
  /// Finds the cgroups. `root` stands before every path, for tests.
  explicit MemoryLimits(std::string root = "");

  /// The tightest of all limits, as it is now. Page cache counts as free as far as the kernel would give it
  /// up: all that is inactive, and half of the rest, as in MemAvailable.
  [[nodiscard]] MemoryRoom left() const;

 private:
  struct Level {
    std::string directory;
    bool unified = false;
    std::size_t limit = 0;
  };
  std::string root_;
  std::vector<Level> levels_;
};

}  // namespace onehop::os
