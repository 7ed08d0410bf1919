// SPDX-License-Identifier: Apache-2.0
// A call's data and whether its result is right, for any collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "bench/bench.h"
#include "bench/check_data.h"
#include "bench/shape.h"

namespace onehop::cli {

/// What `out` holds before a call.
inline constexpr int kPoison = 0xA5;

/// The inputs of all ranks, of one size.
[[nodiscard]] CheckData check_data_of(const BenchOptions& options, const Shape& shape);

/// What is wrong with a rank's output, every element of which is looked at: "element 3 of 8 is 1, expected
/// 2". Empty when nothing is, or when the rank gets nothing.
[[nodiscard]] std::string complaint_about(const BenchOptions& options, const Shape& shape,
                                          const CheckData& data, Rank rank, const std::byte* out,
                                          int threads = 1);

/// "all-reduce of 4096 bytes (f32 sum, one-shot)"
[[nodiscard]] std::string name_of_call(const BenchOptions& options, const Shape& shape, Algorithm algorithm);

}  // namespace onehop::cli
