// SPDX-License-Identifier: Apache-2.0
// The memory of simulated GPUs: regions of this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace onehop::ptx {

/// The memory that kernels and copies may access.
class Memory {
 public:
  void add(const void* data, std::size_t bytes, bool writable, std::string name);
  void remove(const void* data);
  /// How often accesses came to the region that begins at `data` from another one.
  [[nodiscard]] std::uint64_t visits(const void* data) const;
  /// Throws unless the bytes lie within one region, aligned to `width`.
  void check(std::uintptr_t at, std::size_t bytes, std::size_t width, bool writes) const {
    if (at - last_begin_ < last_bytes_ && at + bytes <= last_begin_ + last_bytes_ &&
        (!writes || last_writable_) && at % width == 0)
      return;
    look_up(at, bytes, width, writes);
  }

 private:
  struct Region {
    std::size_t bytes;
    bool writable;
    std::string name;
    mutable std::uint64_t visits = 0;
  };
  void look_up(std::uintptr_t at, std::size_t bytes, std::size_t width, bool writes) const;

  std::map<std::uintptr_t, Region> regions_;
  mutable std::uintptr_t last_begin_ = 0;
  mutable std::size_t last_bytes_ = 0;
  mutable bool last_writable_ = false;
};

}  // namespace onehop::ptx
