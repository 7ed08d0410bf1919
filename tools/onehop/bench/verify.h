// SPDX-License-Identifier: Apache-2.0
// The input data of a call and the verification of its result, for any collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "onehop/group.h"

#include "bench/bench.h"
#include "bench/check_data.h"
#include "bench/shape.h"

namespace onehop::cli {

/// The bytes of `out` before a call.
inline constexpr int kPoison = 0xA5;

/// The inputs of all ranks, of one size.
[[nodiscard]] CheckData check_data_of(const BenchOptions& options, const Shape& shape);

/// Checks every element of a rank's output: "element 3 of 8 is 1, expected 2". Empty when all are right, or
/// when the rank has no output.
[[nodiscard]] std::string complaint_about(const BenchOptions& options, const Shape& shape,
                                          const CheckData& data, Rank rank, const std::byte* out,
                                          int threads = 1);

/// "all-reduce of 4096 bytes (f32 sum, one-shot)"
[[nodiscard]] std::string name_of_call(const BenchOptions& options, const Shape& shape, Algorithm algorithm);

/// Collective: shares the complaint about this rank's result (empty: it is right) and, where all ranks must
/// have the same result, the hash of its bits. Error{mismatch}, the same on every rank, when any rank complains
/// or two hashes differ. `call` names the call in the message.
void agree_on_result(Group& group, const std::string& call, std::optional<std::uint64_t> hash,
                     const std::string& complaint);

/// Collective: the complaint of the lowest rank that has one, after its number; empty without complaints.
[[nodiscard]] std::string first_complaint(Group& group, std::string_view own);

}  // namespace onehop::cli
