#include "gpu/stress_plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "onehop/group.h"

namespace onehop::testing {
namespace {

constexpr std::uint32_t kLine = 512;
constexpr std::uint32_t kMostShift = 16;  // elements
constexpr std::uint32_t kLargeBytes = 4u << 20;
constexpr std::uint32_t kRoom = kLargeBytes + kMostShift * 8 + kLine;

}  // namespace

StressPlan::StressPlan(std::uint64_t seed, int rank)
    : together_(seed), own_(seed * 64 + static_cast<std::uint64_t>(rank) + 1) {}

std::uint32_t StressPlan::random_bytes() {
  // As likely between 1 and 2 bytes as between 32 and 64 KiB; one in 256 is larger.
  const std::uint32_t log = below(256) == 0 ? 17 + below(6) : 1 + below(16);
  return (1u << (log - 1)) + below(1u << (log - 1));
}

StressOp StressPlan::first_link() {
  StressOp op;
  op.key = static_cast<std::uint32_t>(together_());
  op.type = static_cast<DType>(below(kDTypeCount));
  op.ops = below(kReduceOpCount);
  op.count = std::max(1u, random_bytes() / element_bytes(op.type));
  return op;
}

StressOp StressPlan::next_link(const StressOp& last) {
  // All ranks have the same input. Of floats, what keeps the values as they are stays exact.
  constexpr ReduceOp kSafe[] = {ReduceOp::min, ReduceOp::max, ReduceOp::avg};
  StressOp op = last;
  const auto how = is_float(op.type) ? static_cast<std::uint32_t>(kSafe[below(3)]) : below(kReduceOpCount);
  op.ops |= how << (4 * op.depth);
  ++op.depth;
  op.checked = true;
  return op;
}

std::uint32_t StressPlan::place(const StressOp& op) {
  const std::uint32_t bytes = element_bytes(op.type);
  // Half of them aligned, on every rank for itself.
  const std::uint32_t shift = own_() % 2 == 0 ? 0 : static_cast<std::uint32_t>(own_() % kMostShift);
  const std::uint32_t at = used_ + shift * bytes;
  used_ += (op.count * bytes + kMostShift * bytes + kLine - 1) / kLine * kLine;
  return at;
}

StressBatch StressPlan::batch(int most, std::uint32_t begin) {
  used_ = begin;
  const std::uint32_t wanted = 1 + below(static_cast<std::uint32_t>(std::min(most, kMaxStressOps)));
  StressBatch batch;
  // Two places at most per operation.
  while (batch.size() < wanted && used_ + 2 * kRoom <= begin + kPartBytes) {
    const bool chained = !batch.empty() && batch.back().depth < kMaxStressChain && below(2) == 0;
    StressOp op = chained ? next_link(batch.back()) : first_link();
    op.in = chained ? batch.back().out : place(op);
    // Sums of integers lose no rank's error: only those may take a result away before it has been checked.
    const bool may_overwrite =
        !chained || (!is_float(op.type) && reduction(op, op.depth - 1) == ReduceOp::sum);
    const bool in_place = may_overwrite && below(2) == 0;
    op.out = in_place ? op.in : place(op);
    if (chained && in_place) batch.back().checked = false;
    op.algorithm = static_cast<std::uint8_t>(below(kAlgorithmCount));
    batch.push_back(op);
  }
  return batch;
}

std::string describe(const StressOp& op) {
  std::string chain;
  for (int link = 0; link < op.depth; ++link) {
    if (link > 0) chain += " of ";
    chain += to_string(reduction(op, op.depth - 1 - link));
  }
  return fmt::format(
      "all_reduce of {} {} {}, {}, {}", op.count, to_string(op.type), chain,
      op.in == op.out ? "in place" : "out of place",
      op.algorithm == 0 ? "default algorithm" : to_string(static_cast<Algorithm>(op.algorithm)));
}

}  // namespace onehop::testing
