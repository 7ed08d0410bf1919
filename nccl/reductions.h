// SPDX-License-Identifier: Apache-2.0
// The reductions that programs make: sums of what each rank multiplies by a factor of its own.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "abi.h"

namespace onehop::nccl {

/// What a reduction multiplies by: an element.
struct Factor {
  DataType type{};
  const void* at = nullptr;  ///< on the device; nullptr: `bits` is the element, right-aligned
  std::uint64_t bits = 0;
};

/// Those of a communicator, by number. Thread-safe.
class Reductions {
 public:
  /// Under a number that no reduction of the communicator has had before.
  RedOp add(const Factor& factor);
  void add(RedOp number, const Factor& factor);
  /// Whether there was one.
  bool remove(RedOp number);
  [[nodiscard]] std::optional<Factor> find(RedOp number) const;

 private:
  mutable std::mutex mutex_;
  std::map<int, Factor> factors_;
  int next_;

 public:
  Reductions();
};

/// Where there is no NCCL.
Result red_op_create_pre_mul_sum(RedOp* op, void* scalar, DataType type, Residence residence,
                                 Comm comm) noexcept;
Result red_op_destroy(RedOp op, Comm comm) noexcept;

}  // namespace onehop::nccl
