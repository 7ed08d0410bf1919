// SPDX-License-Identifier: Apache-2.0
#include "gpu/stress_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "onehop/call.h"
#include "onehop/group.h"

namespace onehop::testing {
namespace {

constexpr std::uint32_t kLine = 512;
constexpr std::uint32_t kMostShift = 16;  // elements
constexpr std::uint32_t kLargeBytes = 4u << 20;
constexpr std::uint32_t kRoom = kLargeBytes + kMostShift * 8 + kLine;

/// Only the root has all of X, so only the root can continue the chain.
constexpr bool begins_at_root(Collective kind) {
  return kind == Collective::broadcast || kind == Collective::scatter;
}
constexpr bool ends_at_root(Collective kind) {
  return kind == Collective::reduce || kind == Collective::gather;
}
constexpr bool reads_blocks(Collective kind) {
  return kind == Collective::reduce_scatter || kind == Collective::scatter ||
         kind == Collective::all_to_all || kind == Collective::all_to_all_v;
}
constexpr bool writes_blocks(Collective kind) {
  return kind == Collective::all_gather || kind == Collective::gather || kind == Collective::all_to_all ||
         kind == Collective::all_to_all_v;
}
constexpr bool can_be_in_place(Collective kind) {
  return kind != Collective::all_to_all && kind != Collective::all_to_all_v && kind != Collective::send;
}

}  // namespace

const char* stress_name(Collective kind) {
  return kind == Collective::send ? "send_recv" : traits_of(kind).name;
}

std::vector<Collective> all_stress_kinds() {
  std::vector<Collective> kinds;
  for (int kind = 0; kind < kStressKindCount; ++kind) kinds.push_back(static_cast<Collective>(kind));
  return kinds;
}

std::vector<Collective> parse_stress_kinds(std::string_view list) {
  std::vector<Collective> kinds;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view name = list.substr(begin, end - begin);
    const std::vector<Collective> all = all_stress_kinds();
    const auto found = std::ranges::find(all, name, stress_name);
    if (found == all.end()) {
      std::string known;
      for (const Collective each : all) known += std::string(known.empty() ? "" : ", ") + stress_name(each);
      throw std::invalid_argument(fmt::format("'{}' is not a collective; there are {}", name, known));
    }
    if (std::ranges::find(kinds, *found) == kinds.end()) kinds.push_back(*found);
    begin = end + 1;
  }
  return kinds;
}

StressPlan::StressPlan(std::uint64_t seed, int rank, int ranks, std::vector<Collective> kinds)
    : together_(seed),
      own_(seed * 64 + static_cast<std::uint64_t>(rank) + 1),
      rank_(static_cast<std::uint32_t>(rank)),
      ranks_(static_cast<std::uint32_t>(ranks)),
      kinds_(std::move(kinds)) {}

std::uint32_t StressPlan::random_bytes() {
  // Each power of two up to 64 KiB is equally likely: 1 to 2 bytes as much as 32 to 64 KiB. One in 256 is
  // larger.
  const std::uint32_t log = below(256) == 0 ? 17 + below(6) : 1 + below(16);
  return (1u << (log - 1)) + below(1u << (log - 1));
}

Collective StressPlan::choose(const std::vector<Collective>& among) {
  // Many collectives cannot continue from what others leave. With these odds, about half of all calls are
  // all-reduces.
  const bool has_all_reduce = std::find(among.begin(), among.end(), Collective::all_reduce) != among.end();
  if (has_all_reduce && below(2) == 0) return Collective::all_reduce;
  return among[below(static_cast<std::uint32_t>(among.size()))];
}

StressOp StressPlan::first_link() {
  StressOp op;
  op.kind = op.first = choose(kinds_);
  op.root = op.first_root = static_cast<std::uint8_t>(below(ranks_));
  op.key = static_cast<std::uint32_t>(together_());
  op.type = static_cast<DType>(below(kDTypeCount));
  if (reduces(op.kind)) {
    op.ops = below(kReduceOpCount);
    op.folds = 1;
  } else {
    op.raw = below(2) == 0;
  }
  const std::uint32_t blocks = has_blocks(op.kind) ? ranks_ : 1;
  op.count = op.first_count = std::max(1u, random_bytes() / element_bytes(op.type) / blocks);
  return op;
}

std::vector<Collective> StressPlan::successors(const StressOp& last) const {
  const StressShape shape = shape_after(last);
  const std::uint32_t left = output_count(last, last.root, static_cast<int>(ranks_));
  const auto fits = [&](Collective kind) {
    if (last.raw && reduces(kind)) return false;
    switch (kind) {
      case Collective::all_reduce:
      case Collective::reduce:
      case Collective::send:
        return shape == StressShape::everywhere;
      case Collective::broadcast:
        return shape != StressShape::parts;
      case Collective::reduce_scatter:
        return shape == StressShape::everywhere && left % ranks_ == 0;
      case Collective::scatter:
        return shape != StressShape::parts && left % ranks_ == 0;
      case Collective::all_gather:
      case Collective::gather:
        return shape == StressShape::parts && last.kind != Collective::all_to_all_v &&
               std::uint64_t{left} * ranks_ * element_bytes(last.type) <= kLargeBytes;
      default:
        return false;
    }
  };
  std::vector<Collective> kinds;
  if (last.depth == kMaxStressChain) return kinds;
  std::copy_if(kinds_.begin(), kinds_.end(), std::back_inserter(kinds), fits);
  return kinds;
}

StressOp StressPlan::next_link(const StressOp& last, const std::vector<Collective>& kinds) {
  StressOp op = last;
  op.kind = choose(kinds);
  op.root = static_cast<std::uint8_t>(below(ranks_));
  if (shape_after(last) == StressShape::at_root) op.root = last.root;
  op.count = output_count(last, last.root, static_cast<int>(ranks_));
  if (reads_blocks(op.kind)) op.count /= ranks_;
  if (reduces(op.kind)) {
    // All ranks have the same input. For floats, only ops that keep the values stay exact.
    constexpr ReduceOp kSafe[] = {ReduceOp::min, ReduceOp::max, ReduceOp::avg};
    const auto how = is_float(op.type) ? static_cast<std::uint32_t>(kSafe[below(3)]) : below(kReduceOpCount);
    op.ops |= how << (4 * op.folds);
    ++op.folds;
  }
  ++op.depth;
  op.together = false;
  op.in_place = false;
  op.checked = true;
  return op;
}

StressOp StressPlan::beside(const StressOp& last) {
  StressOp op = last;
  op.key = static_cast<std::uint32_t>(together_());
  if (below(16) == 0) {
    op.type = static_cast<DType>(below(kDTypeCount));
    op.ops = below(kReduceOpCount);
  }
  op.count = op.first_count = std::max(1u, random_bytes() / element_bytes(op.type));
  op.together = true;
  place_first(op);
  return op;
}

std::uint32_t StressPlan::reserve(std::uint32_t elements, DType type) {
  const std::uint32_t bytes = element_bytes(type);
  // Half of the offsets are aligned, and half are in symmetric memory, independently on every rank.
  const std::uint32_t shift = own_() % 2 == 0 ? 0 : static_cast<std::uint32_t>(own_() % kMostShift);
  const std::uint32_t at = (used_ + shift * bytes) | (own_() % 2 == 0 ? 0 : kStressSymmetric);
  used_ += (elements * bytes + kMostShift * bytes + kLine - 1) / kLine * kLine;
  return at;
}

void StressPlan::place_first(StressOp& op) {
  const std::uint32_t in_room = reads_blocks(op.kind) ? ranks_ * op.count : op.count;
  const std::uint32_t out_room = writes_blocks(op.kind) ? ranks_ * op.count : op.count;
  op.in_place = can_be_in_place(op.kind) && below(2) == 0;
  op.in = reserve(op.in_place ? std::max(in_room, out_room) : in_room, op.type);
  if (!op.in_place) {
    op.out = reserve(out_room, op.type);
    return;
  }
  op.out = op.in;
  const std::uint32_t block = op.in + rank_ * op.count * element_bytes(op.type);
  if (reads_blocks(op.kind)) op.out = block;
  if (writes_blocks(op.kind)) op.in = block;
}

StressBatch StressPlan::batch(int most, std::uint32_t begin) {
  used_ = begin;
  const std::uint32_t wanted = 1 + below(static_cast<std::uint32_t>(std::min(most, kMaxStressOps)));
  StressBatch batch;
  // At most two allocations per operation.
  const auto more = [&] { return batch.size() < wanted && used_ + 2 * kRoom <= begin + kPartBytes; };
  while (more()) {
    const std::vector<Collective> kinds =
        batch.empty() ? std::vector<Collective>() : successors(batch.back());
    const bool chained = !kinds.empty() && below(2) == 0;
    StressOp op = chained ? next_link(batch.back(), kinds) : first_link();
    if (!chained) {
      place_first(op);
    } else {
      op.in = op.out = batch.back().out;
      // Sums of integers preserve any rank's error: only those may overwrite a result before it has been
      // checked.
      op.in_place = op.kind == Collective::all_reduce && !is_float(op.type) &&
                    reduction(op, op.folds - 1) == ReduceOp::sum && below(2) == 0;
      if (op.in_place)
        batch.back().checked = false;
      else
        op.out = reserve(writes_blocks(op.kind) ? ranks_ * op.count : op.count, op.type);
    }
    op.algorithm = static_cast<std::uint8_t>(below(traits_of(op.kind).has_two_shot ? kAlgorithmCount : 2));
    batch.push_back(op);
    if (chained || op.kind != Collective::all_reduce || below(16) != 0) continue;
    for (std::uint32_t others = 1 + below(kMaxStressOps); others > 0 && more(); --others) {
      batch.push_back(beside(batch.back()));
    }
  }
  return batch;
}

std::string describe(const StressOp& op) {
  std::string text = fmt::format("{} of {} {}", stress_name(op.kind), op.count, to_string(op.type));
  if (op.raw) text += " of any bits";
  for (int fold = op.folds - 1; fold >= 0; --fold) {
    const ReduceOp how = reduction(op, fold);
    text += fmt::format("{} {}", fold == op.folds - 1 ? "" : " of", to_string(how));
    if (how == ReduceOp::premul_sum) text += fmt::format(" by {}", stress_factor(op));
  }
  if (begins_at_root(op.kind)) text += fmt::format(" from rank {}", op.root);
  if (ends_at_root(op.kind)) text += fmt::format(" to rank {}", op.root);
  if (op.kind == Collective::send) text += fmt::format(" to the {}-th next rank", op.root);
  if (op.depth > 1)
    text +=
        fmt::format(", call {} of a chain from {} of {}", op.depth, stress_name(op.first), op.first_count);
  if (op.together) text += ", in one GroupCall with the previous call";
  return fmt::format(
      "{}, {}, {}", text, op.in_place ? "in place" : "out of place",
      op.algorithm == 0 ? "default algorithm" : to_string(static_cast<Algorithm>(op.algorithm)));
}

}  // namespace onehop::testing
