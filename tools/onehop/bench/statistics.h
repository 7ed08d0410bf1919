// SPDX-License-Identifier: Apache-2.0
// From samples to the figures of a row.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/bench.h"

namespace onehop::cli {

struct Summary {
  double median = 0;
  double min = 0;
  double p95 = 0;
};

/// Of at least one sample; the mean of the middle two for an even number, nearest rank for p95.
[[nodiscard]] Summary summarize(std::vector<double> samples);

/// The same as a row has it.
[[nodiscard]] BenchTime bench_time(std::vector<double> samples);

/// Element-wise maximum: `per_rank[r][i]` is sample i as rank r saw it. All ranks have as many.
[[nodiscard]] std::vector<double> slowest_rank(const std::vector<std::vector<double>>& per_rank);

/// Bytes of the buffer over time, GB/s (10^9).
[[nodiscard]] double algorithm_bandwidth(std::uint64_t bytes, double microseconds);

}  // namespace onehop::cli
