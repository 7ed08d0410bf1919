// SPDX-License-Identifier: Apache-2.0
// Computes the figures of a row from samples.
#pragma once

#include <cstdint>
#include <vector>

#include "onehop/group.h"

#include "bench/bench.h"

namespace onehop::cli {

struct Summary {
  double median = 0;
  double min = 0;
  double p95 = 0;
};

/// At least one sample. The median of an even number is the mean of the middle two; p95 is the nearest rank.
[[nodiscard]] Summary summarize(std::vector<double> samples);

/// The summary in the form of a row.
[[nodiscard]] BenchTime bench_time(std::vector<double> samples);

/// The samples of all ranks, by rank. Collective; all ranks pass the same number.
[[nodiscard]] std::vector<std::vector<double>> gather(Group& group, const std::vector<double>& mine);
[[nodiscard]] std::vector<std::vector<std::uint64_t>> gather(Group& group,
                                                             const std::vector<std::uint64_t>& mine);

/// Element-wise maximum: `per_rank[r][i]` is sample i of rank r. All ranks have the same number.
[[nodiscard]] std::vector<double> slowest_rank(const std::vector<std::vector<double>>& per_rank);

/// Bytes of the buffer per time, in GB/s (10^9).
[[nodiscard]] double algorithm_bandwidth(std::uint64_t bytes, double microseconds);

}  // namespace onehop::cli
