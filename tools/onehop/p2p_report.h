// SPDX-License-Identifier: Apache-2.0
// What 'onehop p2p-check' shows of a check.
#pragma once

#include <string>
#include <vector>

#include "onehop/peer_check.h"

namespace onehop::cli {

/// A line per ordered pair, then one for each pair that failed, then the verdict.
[[nodiscard]] std::string p2p_text(const std::vector<PairReport>& reports);
/// The same for programs.
[[nodiscard]] std::string p2p_json(const std::vector<PairReport>& reports, std::size_t bytes);

[[nodiscard]] bool all_ok(const std::vector<PairReport>& reports);
/// A device did not finish: what the driver does when this process ends may wait for it.
[[nodiscard]] bool any_hung(const std::vector<PairReport>& reports);

}  // namespace onehop::cli
