// SPDX-License-Identifier: Apache-2.0
// What ranks that are threads of one process need to know of each other: which process this is, and memory to
// share.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "memory/backend.h"
#include "os/process_id.h"

namespace onehop {

/// Ranks with equal ones share an address space.
using os::process_id;

/// Memory that a rank offers to the other ranks of its process: they need no second mapping. What travels is
/// a number and no pointer, so that neither a rank that has given up in between nor a peer that makes numbers
/// up leads to memory that is not there.
class LocalOffer {
 public:
  LocalOffer() = default;  ///< of nothing
  explicit LocalOffer(std::shared_ptr<Block> block);
  LocalOffer(LocalOffer&& other) noexcept : number_(std::exchange(other.number_, 0)) {}
  LocalOffer& operator=(LocalOffer&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~LocalOffer();  ///< withdraws it

  /// 0 for an offer of nothing.
  [[nodiscard]] std::uint64_t number() const { return number_; }
  /// nullptr when there is no such offer, or no more.
  [[nodiscard]] static std::shared_ptr<Block> take(std::uint64_t number);

 private:
  std::uint64_t number_ = 0;
};

}  // namespace onehop
