// SPDX-License-Identifier: Apache-2.0
// How much memory the kernel can still provide within the limits whose violation kills instead of failing:
// those of the machine and of this process's memory cgroups (v1 and v2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace onehop::os {

/// A hierarchy of memory cgroups, as visible to one process.
struct MemoryCgroup {
  std::string directory;  ///< directory of the process's own cgroup
  std::string top;        ///< directory of the highest visible cgroup: `directory` or one of its parents
  bool unified = false;   ///< cgroup v2

  bool operator==(const MemoryCgroup& other) const = default;
};

/// Finds the hierarchies from the texts of /proc/self/cgroup and /proc/self/mountinfo. A pure function.
/// Malformed lines are skipped. Returns at most one hierarchy per version.
[[nodiscard]] std::vector<MemoryCgroup> parse_memory_cgroups(std::string_view cgroups,
                                                             std::string_view mountinfo);

struct MemoryRoom {
  std::size_t left = SIZE_MAX;  ///< bytes, without swapping; SIZE_MAX: unknown
  std::string where{};          ///< source of the limit: "the machine" or "cgroup <directory>"
};

/// Thread-safe.
class MemoryLimits {
 public:
  /// Finds the cgroups. For tests, `root` is prepended to every path.
  explicit MemoryLimits(std::string root = "");

  /// The tightest of all current limits. Page cache counts as free as far as the kernel reclaims it: all
  /// inactive pages and half of the rest, as in MemAvailable.
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
