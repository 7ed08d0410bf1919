// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace onehop::cli {

Summary summarize(std::vector<double> samples) {
  require(!samples.empty(), "no samples to summarize");
  std::sort(samples.begin(), samples.end());
  const std::size_t size = samples.size();
  const double median = (samples[(size - 1) / 2] + samples[size / 2]) / 2;
  const auto nearest = static_cast<std::size_t>(std::ceil(0.95 * static_cast<double>(size)));
  return {median, samples.front(), samples[std::max<std::size_t>(nearest, 1) - 1]};
}

BenchTime bench_time(std::vector<double> samples) {
  const Summary summary = summarize(std::move(samples));
  return {summary.median, summary.min, summary.p95};
}

std::vector<double> slowest_rank(const std::vector<std::vector<double>>& per_rank) {
  std::vector<double> slowest = per_rank.at(0);
  for (const std::vector<double>& samples : per_rank) {
    for (std::size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], samples.at(i));
  }
  return slowest;
}

double algorithm_bandwidth(std::uint64_t bytes, double microseconds) {
  return microseconds > 0 ? static_cast<double>(bytes) / microseconds / 1e3 : 0;
}

}  // namespace onehop::cli
