// SPDX-License-Identifier: Apache-2.0
// The output of 'onehop p2p-check'.
#pragma once

#include <string>
#include <vector>

#include "onehop/peer_check.h"

namespace onehop::cli {

/// A line per ordered pair, then a line per failed pair, then the verdict.
[[nodiscard]] std::string p2p_text(const std::vector<PairReport>& reports, bool colors = false);
/// The same as JSON.
[[nodiscard]] std::string p2p_json(const std::vector<PairReport>& reports, std::size_t bytes);

[[nodiscard]] bool all_ok(const std::vector<PairReport>& reports);
/// A device did not finish. The driver may wait for it when this process exits.
[[nodiscard]] bool any_hung(const std::vector<PairReport>& reports);

}  // namespace onehop::cli
