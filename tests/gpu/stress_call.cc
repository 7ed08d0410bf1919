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
  CallOptions options;
  if (op.algorithm != 0) options.algorithm = static_cast<Algorithm>(op.algorithm);
  if (reduces(op.kind) && how == ReduceOp::premul_sum) options.factor = stress_factor(op);
  switch (op.kind) {
    case StressKind::all_reduce:
      (void)all_reduce(group, in, out, op.count, op.type, how, stream, options);
      return;
    case StressKind::all_gather:
      (void)all_gather(group, in, out, op.count, op.type, stream, options);
      return;
    case StressKind::reduce_scatter:
      (void)reduce_scatter(group, in, out, op.count, op.type, how, stream, options);
      return;
    case StressKind::broadcast:
      (void)broadcast(group, in, out, op.count, op.type, root, stream, options);
      return;
    case StressKind::reduce:
      (void)reduce(group, in, out, op.count, op.type, how, root, stream, options);
      return;
    case StressKind::all_to_all:
      (void)all_to_all(group, in, out, op.count, op.type, stream, options);
      return;
    case StressKind::all_to_all_v: {
      const BlocksInARow from(ranks, false, [&](int to) { return count_between(op, me, to); });
      const BlocksInARow to(ranks, true, [&](int source) { return count_between(op, source, me); });
      (void)all_to_all_v(group, in, from.blocks(), out, to.blocks(), op.type, stream, options);
      return;
    }
    case StressKind::gather:
      (void)gather(group, in, out, op.count, op.type, root, stream, options);
      return;
    case StressKind::scatter:
      (void)scatter(group, in, out, op.count, op.type, root, stream, options);
      return;
    case StressKind::send_recv: {
      GroupCall scope;
      (void)send(group, in, op.count, op.type, Rank{(me + op.root) % ranks}, stream, options);
      (void)recv(group, out, op.count, op.type, Rank{(me + ranks - op.root) % ranks}, stream, options);
      scope.end();
      return;
    }
  }
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
