// SPDX-License-Identifier: Apache-2.0
#include "bench/predict.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "bench/shape.h"
#include "bench/statistics.h"

namespace onehop::cli {
namespace {

constexpr int kMeasuredRanks = 2;

/// Times of a collective on 2 ranks by size.
class Curve {
 public:
  explicit Curve(const std::vector<BenchRow>& rows) {
    for (const BenchRow& row : rows) {
      if (row.time.median_us > 0) points_.emplace_back(static_cast<double>(row.bytes), row.time.median_us);
    }
    std::sort(points_.begin(), points_.end());
  }
  [[nodiscard]] bool empty() const { return points_.empty(); }
  /// That of the smallest size.
  [[nodiscard]] double hop() const { return points_.front().second; }
  /// Between two sizes on a line, below the smallest one as that one, beyond the largest one in proportion.
  [[nodiscard]] double at(double bytes) const {
    if (bytes <= points_.front().first) return hop();
    const auto above = std::lower_bound(points_.begin(), points_.end(), std::pair(bytes, 0.0));
    if (above == points_.end()) return points_.back().second * bytes / points_.back().first;
    const auto [b, b_us] = *above;
    const auto [a, a_us] = *std::prev(above);
    return a_us + (b_us - a_us) * (bytes - a) / (b - a);
  }

 private:
  std::vector<std::pair<double, double>> points_;  ///< ascending
};

/// Microseconds. Where all ranks' data meets in one block, a call either sends it to everyone who needs it at once, or spreads
/// the work over all ranks, which takes a second hop. Everywhere else one hop brings each block to its place.
double predicted(const Benchmark& collective, const Curve& curve, double bytes, int ranks) {
  if (!collective.moves_data || collective.ring) return curve.at(bytes);
  const double spread =
      curve.at(bytes * collective.bus_factor.of(ranks) / collective.bus_factor.of(kMeasuredRanks));
  if (collective.in.block_per_rank || collective.out.block_per_rank) return spread;
  return std::min(curve.at(bytes * (ranks - 1)), spread + curve.hop());
}

void predict(BenchReport& report, int ranks) {
  BenchOptions& options = report.options;
  const Benchmark& collective = *options.collective;
  const Curve curve(report.rows);
  std::vector<BenchRow> rows;
  options.predicted_from = options.ranks;
  options.ranks = ranks;
  options.nccl.clear();
  options.repeat = 1;
  for (const BenchRow& measured : report.rows) {
    const Shape shape = shape_of(options, Rank{0}, measured.bytes);
    if (curve.empty() || (collective.moves_data && shape.count == 0)) continue;
    BenchRow row;
    row.bytes = shape.bytes;
    row.count = shape.count;
    const double us = predicted(collective, curve, static_cast<double>(shape.bytes), ranks);
    row.time = {us, us, us};
    row.algbw = algorithm_bandwidth(row.bytes, us);
    row.busbw = row.algbw * collective.bus_factor.of(ranks);
    rows.push_back(row);
  }
  report.rows = std::move(rows);
  report.notes.clear();
}

}  // namespace

BenchDocument predict(BenchDocument measured, const std::string& name, int ranks) {
  for (BenchReport& report : measured.reports) {
    const BenchOptions& options = report.options;
    require(options.predicted_from == 0, "'{}' is a prediction itself; --predict needs what 2 GPUs measured",
            name);
    require(options.cuda && options.ranks == kMeasuredRanks,
            "'{}' has {} of {} {} ranks; --predict needs what 2 GPUs measured (onehop bench --device cuda "
            "--ranks 2)",
            name, options.collective->name, options.ranks, options.cuda ? "GPU" : "host");
    predict(report, ranks);
  }
  return measured;
}

}  // namespace onehop::cli
