// SPDX-License-Identifier: Apache-2.0
#include "bench/winners.h"

#include <algorithm>
#include <utility>

namespace onehop::cli {
namespace {

constexpr double kNoise = 1.02;
// How far two measurements of the same choice may differ.
constexpr double kClose = 1.10;
constexpr std::size_t kMostFinalists = 4;
// With growing sizes one-shot moves ever more bytes than two-shot, and few blocks never fill the links. Below
// this size, an algorithm with a high start-up cost may still become the fastest.
constexpr std::uint64_t kLargeMessage = 16 << 20;
constexpr double kFarSlower = 2;

}  // namespace

std::string describe(const Choice& choice) {
  return choice ? to_string(*choice) : "default";
}

Figures::Figures(std::vector<std::uint64_t> the_sizes, std::vector<Choice> the_choices)
    : sizes(std::move(the_sizes)),
      choices(std::move(the_choices)),
      us(choices.size(), std::vector<std::optional<double>>(sizes.size())) {}

std::optional<double> Figures::best(std::size_t size) const {
  std::optional<double> best;
  for (const auto& times : us) {
    if (times[size] && (!best || *times[size] < *best)) best = times[size];
  }
  return best;
}

bool is_far_slower(const Figures& figures, std::size_t choice, std::size_t size) {
  const std::optional<double> time = figures.us[choice][size];
  // The default is what all others are compared with.
  if (choice == 0 || !time || figures.sizes[size] < kLargeMessage) return false;
  return *time > kFarSlower * figures.best(size).value_or(*time);
}

std::optional<std::size_t> equivalent(const Figures& figures, std::size_t choice, std::size_t size) {
  const std::uint64_t bytes = figures.sizes[size];
  const auto whole = [&](const Choice& each) { return each && each->chunk && *each->chunk >= bytes; };
  const Choice& own = figures.choices[choice];
  if (!whole(own)) return std::nullopt;
  for (std::size_t other = 0; other < choice; ++other) {
    const Choice& before = figures.choices[other];
    if (whole(before) && before->algorithm == own->algorithm) return other;
  }
  return std::nullopt;
}

std::vector<std::size_t> finalists(const Figures& figures, std::size_t size) {
  const std::optional<double> best = figures.best(size);
  if (!best) return {};
  std::vector<std::size_t> close;
  for (std::size_t choice = 0; choice < figures.choices.size(); ++choice) {
    const std::optional<double> time = figures.us[choice][size];
    if (time && *time <= kClose * *best && !equivalent(figures, choice, size)) close.push_back(choice);
  }
  std::ranges::stable_sort(close, {}, [&](std::size_t choice) { return *figures.us[choice][size]; });
  if (close.size() > kMostFinalists) close.resize(kMostFinalists);
  if (std::ranges::count(close, std::size_t{0}) == 0 && figures.us[0][size]) close.push_back(0);
  return close;
}

std::vector<Winner> pick_winners(const Figures& figures) {
  std::vector<Winner> winners;
  std::size_t last = 0;
  for (std::size_t size = 0; size < figures.sizes.size(); ++size) {
    const std::optional<double> best = figures.best(size);
    if (!best) continue;
    const auto good = [&](std::size_t choice) {
      const std::optional<double> time = figures.us[choice][size];
      return time && *time <= kNoise * *best;
    };
    std::size_t winner = good(0) ? 0 : last;
    if (!good(winner)) {
      const auto fastest = std::find_if(figures.us.begin(), figures.us.end(),
                                        [&](const auto& times) { return times[size] == best; });
      winner = static_cast<std::size_t>(fastest - figures.us.begin());
    }
    winners.push_back({.bytes = figures.sizes[size],
                       .choice = winner,
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
    const Choice& choice = figures.choices[winner.choice];
    if (rows.empty() || rows.back().choice != choice) {
      rows.push_back(like);
      rows.back().choice = choice;
    }
    rows.back().up_to = winner.bytes;
  }
  if (!rows.empty()) rows.back().up_to = kNoLimit;
  return rows;
}

}  // namespace onehop::cli
