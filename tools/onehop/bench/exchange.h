// SPDX-License-Identifier: Apache-2.0
// What the ranks of a benchmark tell each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/group.h"

namespace onehop::cli {

/// Everyone's figures by rank. Collective; all ranks have as many.
[[nodiscard]] std::vector<std::vector<double>> gather(Group& group, const std::vector<double>& mine);
[[nodiscard]] std::vector<std::vector<std::uint64_t>> gather(Group& group,
                                                             const std::vector<std::uint64_t>& mine);

/// Collective: tells the others what is wrong with this rank's result (nothing: empty) and, where all ranks
/// should hold the same, the hash of its bits. Error{mismatch}, the same on every rank, when any rank
/// complains or two hold different bits. `call` is what was called, for the message.
void agree_on_result(Group& group, const std::string& call, std::optional<std::uint64_t> hash,
                     const std::string& complaint);

/// Collective: the first rank's complaint with its number before it; empty when nobody complains.
[[nodiscard]] std::string first_complaint(Group& group, std::string_view own);

}  // namespace onehop::cli
