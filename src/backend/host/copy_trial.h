// SPDX-License-Identifier: Apache-2.0
// Whether host ranks in different processes should read each other's memory, which is measured when a group
// forms. The system call copies once instead of twice, but page by page, and how fast differs a lot: 64 KiB
// take 6.7 us instead of 1.8 us on an AMD EPYC, where staging is therefore faster at all sizes, and 8.6 us
// instead of 5.4 us on an Intel Xeon, where single copies are.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace onehop::host {

/// What a rank offers the others to read, once in its private memory and once in its staging area.
class CopyTrial {
 public:
  /// Writes both, so that they are in this core's cache as the data of a call is. `staging`: this rank's
  /// staging area, of any size.
  explicit CopyTrial(std::span<std::byte> staging);

  /// For the other ranks; valid while this object lives.
  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(data_.data()); }

  /// Microseconds for kBytes.
  struct Times {
    double pulled = 0;  ///< by the system call, from the private memory
    double mapped = 0;  ///< from the staging area
  };
  static constexpr std::size_t kBytes = 64 << 10;
  /// Reads the data of another rank, whose trial is at `address` in `process` and whose staging area is
  /// mapped here. No result if the memory cannot be read or the staging area is too small.
  [[nodiscard]] static std::optional<Times> measure(pid_t process, std::uint64_t address,
                                                    std::span<const std::byte> staging);

 private:
  std::vector<std::byte> data_;
};

/// Why ranks that measured these times (all of them, in rank order) should stage; empty if they should not.
[[nodiscard]] std::string find_slowness(std::span<const CopyTrial::Times> times);

}  // namespace onehop::host
