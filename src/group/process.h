// SPDX-License-Identifier: Apache-2.0
// Support for ranks that are threads of one process: the identity of the process, and memory to share.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "memory/backend.h"
#include "os/process_id.h"

namespace onehop {

/// Ranks with equal values share an address space.
using os::process_id;

/// Memory that a rank offers to the other ranks of its process, which need no second mapping. Ranks send its
/// number instead of a pointer. So neither a rank that has given up meanwhile nor a peer that invents numbers
/// leads to invalid memory.
class LocalOffer {
 public:
  LocalOffer() = default;  ///< an empty offer
  explicit LocalOffer(std::shared_ptr<Block> block);
  LocalOffer(LocalOffer&& other) noexcept : number_(std::exchange(other.number_, 0)) {}
  LocalOffer& operator=(LocalOffer&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~LocalOffer();  ///< withdraws it

  /// 0 for an empty offer.
  [[nodiscard]] std::uint64_t number() const { return number_; }
  /// nullptr when there is no such offer, or it has been withdrawn.
  [[nodiscard]] static std::shared_ptr<Block> take(std::uint64_t number);

 private:
  std::uint64_t number_ = 0;
};

}  // namespace onehop
