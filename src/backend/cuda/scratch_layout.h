// SPDX-License-Identifier: Apache-2.0
// How a segment of scratch memory is cut into regions.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "backend/cuda/scratch.h"

namespace onehop::cuda {

/// A part of every segment. Its address identifies it.
struct ScratchRegion {
  std::size_t (*bytes)(const GroupShape&);
};

/// The regions of all algorithms, one behind the other.
class ScratchLayout {
 public:
  explicit ScratchLayout(const GroupShape& shape);

  [[nodiscard]] std::size_t offset(const ScratchRegion& region) const {
    for (const auto& [each, at] : offsets_) {
      if (each == &region) return at;
    }
    return 0;  // not reached: every region is declared by an algorithm
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::vector<std::pair<const ScratchRegion*, std::size_t>> offsets_;
  std::size_t bytes_ = kScratchAlignment;
};

}  // namespace onehop::cuda
