// SPDX-License-Identifier: Apache-2.0
#include "bench/winners.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace onehop::cli {
namespace {

constexpr double kNoise = 1.02;
// One-shot moves ever more bytes than two-shot, and few blocks never fill the links; but a way with a long
// start may still come into its own beyond the size from which on ways are given up.
constexpr std::uint64_t kFirstHopeless = 16 << 20;
constexpr double kHopeless = 2;

}  // namespace

Figures::Figures(std::vector<std::uint64_t> the_sizes, std::vector<Way> the_ways)
    : sizes(std::move(the_sizes)),
      ways(std::move(the_ways)),
      us(ways.size(), std::vector<std::optional<double>>(sizes.size())) {}

std::optional<double> Figures::best(std::size_t size) const {
  std::optional<double> best;
  for (const auto& way : us) {
    if (way[size] && (!best || *way[size] < *best)) best = way[size];
  }
  return best;
}

bool is_hopeless(const Figures& figures, std::size_t way, std::size_t size) {
  const std::optional<double> time = figures.us[way][size];
  // The default is what all others are compared with.
  if (way == 0 || !time || figures.sizes[size] < kFirstHopeless) return false;
  return *time > kHopeless * figures.best(size).value_or(*time);
}

std::optional<std::size_t> equivalent(const Figures& figures, std::size_t way, std::size_t size) {
  const std::uint64_t bytes = figures.sizes[size];
  const auto* const own = std::get_if<HostWay>(&figures.ways[way]);
  if (own == nullptr || own->chunk < bytes) return std::nullopt;
  for (std::size_t other = 0; other < way; ++other) {
    const auto* const before = std::get_if<HostWay>(&figures.ways[other]);
    if (before != nullptr && before->algorithm == own->algorithm && before->chunk >= bytes) return other;
  }
  return std::nullopt;
}

std::vector<Winner> pick_winners(const Figures& figures) {
  std::vector<Winner> winners;
  std::size_t last = 0;
  for (std::size_t size = 0; size < figures.sizes.size(); ++size) {
    const std::optional<double> best = figures.best(size);
    if (!best) continue;
    const auto good = [&](std::size_t way) {
      const std::optional<double> time = figures.us[way][size];
      return time && *time <= kNoise * *best;
    };
    std::size_t winner = good(0) ? 0 : last;
    if (!good(winner)) {
      const auto fastest = std::find_if(figures.us.begin(), figures.us.end(),
                                        [&](const auto& way) { return way[size] == best; });
      winner = static_cast<std::size_t>(fastest - figures.us.begin());
    }
    winners.push_back({.bytes = figures.sizes[size],
                       .way = winner,
                       .us = figures.us[winner][size].value_or(0),
                       .default_us = figures.us[0][size].value_or(0)});
    last = winner;
  }
  return winners;
}

std::vector<TuningRow> merge(const Figures& figures, const std::vector<Winner>& winners,
                             const TuningRow& like) {
  std::vector<TuningRow> rows;
  for (const Winner& winner : winners) {
    const Way& way = figures.ways[winner.way];
    if (rows.empty() || rows.back().way != way) {
      rows.push_back(like);
      rows.back().way = way;
    }
    rows.back().up_to = winner.bytes;
  }
  if (!rows.empty()) rows.back().up_to = kNoLimit;
  return rows;
}

}  // namespace onehop::cli
