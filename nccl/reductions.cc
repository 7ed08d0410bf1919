// SPDX-License-Identifier: Apache-2.0
#include "reductions.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/nccl.h"
#include "collectives.h"
#include "communicator.h"
#include "dispatch.h"
#include "guard.h"

namespace onehop::nccl {
namespace {

/// ncclNumOps: numbers below are NCCL's own.
constexpr int kFirst = kNcclOps.size();

Factor to_factor(const void* scalar, DataType type, Residence residence) {
  require(scalar != nullptr, "scalar is NULL");
  const std::size_t bytes = size_of(type_of(type));
  if (residence == Residence::device) return {.type = type, .on_device = scalar};
  require(residence == Residence::host,
          "residence {} is neither ncclScalarDevice (0) nor ncclScalarHostImmediate (1)",
          static_cast<int>(residence));
  std::uint64_t element = 0;  // little-endian, so that what lies first is rightmost
  std::memcpy(&element, scalar, bytes);
  return {.type = type, .element = std::make_shared<const std::uint64_t>(element)};
}

}  // namespace

RedOp Reductions::add(Factor factor) {
  const std::lock_guard lock(mutex_);
  const int number = factors_.empty() ? kFirst : factors_.rbegin()->first + 1;
  factors_.emplace(number, std::move(factor));
  return RedOp{number};
}

void Reductions::put(RedOp op, Factor factor) {
  const std::lock_guard lock(mutex_);
  factors_.insert_or_assign(static_cast<int>(op), std::move(factor));
}

bool Reductions::remove(RedOp op) {
  const std::lock_guard lock(mutex_);
  return factors_.erase(static_cast<int>(op)) != 0;
}

std::optional<Factor> Reductions::find(RedOp op) const {
  const std::lock_guard lock(mutex_);
  const auto found = factors_.find(static_cast<int>(op));
  if (found == factors_.end()) return std::nullopt;
  return found->second;
}

Result create_pre_mul_sum(RedOp* op, void* scalar, DataType type, Residence residence, Comm comm) noexcept {
  return guarded("ncclRedOpCreatePreMulSum", [&] {
    require(op != nullptr, "op is NULL");
    *op = find(comm)->reductions().add(to_factor(scalar, type, residence));
    return Result::success;
  });
}

Result destroy_reduction(RedOp op, Comm comm) noexcept {
  return guarded("ncclRedOpDestroy", [&] {
    require(find(comm)->reductions().remove(op), "reduction {} is none that the program made",
            static_cast<int>(op));
    return Result::success;
  });
}

namespace accelerate {

Result create_pre_mul_sum(RedOp* op, void* scalar, DataType type, Residence residence, Comm comm) noexcept {
  const Result result = forward<"ncclRedOpCreatePreMulSum">(op, scalar, type, residence, comm);
  if (result != Result::success || !is_carried(comm) || !is_known(type)) return result;
  return guarded("ncclRedOpCreatePreMulSum", [&] {
    find(comm)->reductions().put(*op, to_factor(scalar, type, residence));
    return result;
  });
}

Result destroy_reduction(RedOp op, Comm comm) noexcept {
  // First here: NCCL may give the number to another thread at once.
  const Result own = guarded("ncclRedOpDestroy", [&] {
    if (is_carried(comm)) (void)find(comm)->reductions().remove(op);
    return Result::success;
  });
  const Result result = forward<"ncclRedOpDestroy">(op, comm);
  return result == Result::success ? own : result;
}

}  // namespace accelerate

}  // namespace onehop::nccl
