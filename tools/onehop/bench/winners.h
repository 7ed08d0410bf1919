// SPDX-License-Identifier: Apache-2.0
// From the times of every way to a tuning table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "onehop/tuning.h"

namespace onehop::cli {

/// The measurements of one class of types.
struct Figures {
  std::vector<std::uint64_t> sizes;  ///< ascending, each once
  std::vector<Way> ways;             ///< the default first
  /// us per call, by way, then by size; nothing where a way was given up.
  std::vector<std::vector<std::optional<double>>> us;

  Figures(std::vector<std::uint64_t> the_sizes, std::vector<Way> the_ways);
  /// Of all ways so far.
  [[nodiscard]] std::optional<double> best(std::size_t size) const;
};

/// Whether a way that took so long at a size is not worth measuring at larger ones, where the time is the
/// bytes'.
[[nodiscard]] bool is_hopeless(const Figures& figures, std::size_t way, std::size_t size);

/// An earlier way that is the same at this size, so that it need not be measured again: both have chunks that
/// hold the whole message.
[[nodiscard]] std::optional<std::size_t> equivalent(const Figures& figures, std::size_t way,
                                                    std::size_t size);

struct Winner {
  std::uint64_t bytes = 0;
  std::size_t way = 0;
  double us = 0;
  double default_us = 0;
};

/// The quickest way of every size. Where they are within the noise of measuring: the default, else that of
/// the size before.
[[nodiscard]] std::vector<Winner> pick_winners(const Figures& figures);

/// Neighbouring sizes with one winner become one row, which reaches to the largest of them, the last without
/// end. `like` says for which calls.
[[nodiscard]] std::vector<TuningRow> merge(const Figures& figures, const std::vector<Winner>& winners,
                                           const TuningRow& like);

}  // namespace onehop::cli
