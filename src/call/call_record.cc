// SPDX-License-Identifier: Apache-2.0
#include "call/call_record.h"

#include <fmt/format.h>

#include <bit>

#include "onehop/call.h"

namespace onehop {

std::string describe(const CallRecord& call) {
  const auto collective = static_cast<Collective>(call.collective);
  const CollectiveTraits& traits = traits_of(collective);
  if (collective == Collective::barrier) return "barrier()";
  if (call.collective >= kCollectiveCount) return traits.name;
  std::string text = fmt::format("{}(", traits.name);
  if (traits.in != Amount::counted_by_rank) text += fmt::format("count {}, ", call.count);
  text += to_string(static_cast<DType>(call.dtype));
  const auto op = static_cast<ReduceOp>(call.op);
  if (traits.reduces) text += fmt::format(", {}", to_string(op));
  const auto factor = std::bit_cast<double>(call.factor);
  if (call.own_factor != 0) {
    text += ", a factor per rank";
  } else if (op == ReduceOp::premul_sum || factor != 1) {
    text += fmt::format(", factor {}", factor);
  }
  if (traits.has_root()) text += fmt::format(", root {}", call.root);
  if (call.algorithm != kAnyAlgorithm)
    text += fmt::format(", {}", to_string(static_cast<Algorithm>(call.algorithm)));
  if (call.symmetric != 0) text += ", symmetric";
  return text + ")";
}

}  // namespace onehop
