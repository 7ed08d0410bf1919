// SPDX-License-Identifier: Apache-2.0
#include "gpu/stress_call.h"

#include <array>
#include <cstddef>

#include "onehop/onehop.h"

namespace onehop::testing {
namespace {

/// Blocks that lie one after the other, in the order of their ranks or in the reverse order.
class BlocksInARow {
 public:
  template <class Count>
  BlocksInARow(int ranks, bool reverse, const Count& count) : ranks_(static_cast<std::size_t>(ranks)) {
    std::size_t end = 0;
    for (int i = 0; i < ranks; ++i) {
      const int rank = reverse ? ranks - 1 - i : i;
      const auto at = static_cast<std::size_t>(rank);
      counts_[at] = count(rank);
      offsets_[at] = end;
      end += counts_[at];
    }
  }
  [[nodiscard]] Blocks blocks() const {
    return {.counts = {counts_.data(), ranks_}, .offsets = {offsets_.data(), ranks_}};
  }

 private:
  std::size_t ranks_;
  std::array<std::size_t, kMaxDevices> counts_{};
  std::array<std::size_t, kMaxDevices> offsets_{};
};

}  // namespace

void make_call(Group& group, const StressArena& arena, const StressOp& op, Stream stream) {
  const int me = group.rank().value;
  const int ranks = group.size();
  const std::byte* const in = input_count(op, me, ranks) != 0 ? arena.at(op.in) : nullptr;
  std::byte* const out = output_count(op, me, ranks) != 0 ? arena.at(op.out) : nullptr;
  const Rank root{op.root};
  const ReduceOp how = op.folds == 0 ? ReduceOp::sum : reduction(op, op.folds - 1);
  Call call{.collective = op.kind,
            .in = in,
            .out = out,
            .count = op.count,
            .type = op.type,
            .op = how,
            .root = root,
            .stream = stream};
  if (op.algorithm != 0) call.options.algorithm = static_cast<Algorithm>(op.algorithm);
  if (reduces(op.kind) && how == ReduceOp::premul_sum) call.options.factor = stress_factor(op);
  if (op.kind == Collective::send) {
    GroupCall scope;
    call.root = Rank{(me + op.root) % ranks};
    (void)run(group, call);
    call.collective = Collective::recv;
    call.root = Rank{(me + ranks - op.root) % ranks};
    (void)run(group, call);
    scope.end();
    return;
  }
  const BlocksInARow from(ranks, false, [&](int to) { return count_between(op, me, to); });
  const BlocksInARow to(ranks, true, [&](int source) { return count_between(op, source, me); });
  if (op.kind == Collective::all_to_all_v) {
    call.in_blocks = from.blocks();
    call.out_blocks = to.blocks();
  }
  (void)run(group, call);
}

void make_calls(Group& group, const StressArena& arena, std::span<const StressOp> ops, Stream stream) {
  for (std::size_t begin = 0; begin < ops.size();) {
    std::size_t end = begin + 1;
    while (end < ops.size() && ops[end].together) ++end;
    if (end == begin + 1) {
      make_call(group, arena, ops[begin], stream);
    } else {
      GroupCall scope;
      for (std::size_t i = begin; i < end; ++i) make_call(group, arena, ops[i], stream);
      scope.end();
    }
    begin = end;
  }
}

}  // namespace onehop::testing
