// SPDX-License-Identifier: Apache-2.0
#include "collective/call_log.h"

#include <algorithm>

namespace onehop {

void detail::write_call_log(const Group::State& group, const Arguments& call, Algorithm used,
                            std::string_view how) {
  // The larger of what a rank passes and what it gets, as benchmarks count.
  const auto blocks = static_cast<std::size_t>(std::max({call.in_blocks, call.out_blocks, 0}));
  log::debug("rank {} of '{}': {}: {}{}{}, {} bytes", group.rank().value, group.options().name,
             describe(describe_call(call, CallDefect::none)),
             used == Algorithm::none ? std::string_view("left to the caller") : to_string(used),
             how.empty() ? "" : " by ", how, call.sent_bytes + blocks * call.block_bytes());
}

}  // namespace onehop
