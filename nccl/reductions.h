// SPDX-License-Identifier: Apache-2.0
// The reductions that programs make (ncclRedOpCreatePreMulSum): sums of what each rank multiplies by a factor of its own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "abi.h"

namespace onehop::nccl {

/// What a rank multiplies its elements by.
struct Factor {
  DataType type{};
  const void* on_device = nullptr;  ///< where it lies; nullptr: `element` has it
  /// The bits, right-aligned. Shared with the calls that are queued, since the reduction may be destroyed before they run.
  std::shared_ptr<const std::uint64_t> element{};
};

/// Those of a communicator. Thread-safe.
class Reductions {
 public:
  /// Returns a number that no other one has.
  [[nodiscard]] RedOp add(Factor factor);
  /// Under a number of NCCL's.
  void put(RedOp op, Factor factor);
  /// Returns whether there was one.
  bool remove(RedOp op);
  [[nodiscard]] std::optional<Factor> find(RedOp op) const;

 private:
  mutable std::mutex mutex_;
  std::map<int, Factor> factors_;
};

/// Where there is no NCCL.
Result create_pre_mul_sum(RedOp* op, void* scalar, DataType type, Residence residence, Comm comm) noexcept;
Result destroy_reduction(RedOp op, Comm comm) noexcept;

namespace accelerate {
Result create_pre_mul_sum(RedOp* op, void* scalar, DataType type, Residence residence, Comm comm) noexcept;
Result destroy_reduction(RedOp op, Comm comm) noexcept;
}  // namespace accelerate

}  // namespace onehop::nccl
