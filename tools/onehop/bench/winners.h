// SPDX-License-Identifier: Apache-2.0
// From the times of all choices to a tuning table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onehop/tuning.h"

namespace onehop::cli {

/// nullopt: the library's own choice.
using Choice = std::optional<AlgorithmChoice>;
/// "default" or to_string(*choice).
[[nodiscard]] std::string describe(const Choice& choice);

/// The measurements of one collective, one class of types and one kind of buffers.
struct Figures {
  std::vector<std::uint64_t> sizes;  ///< ascending, each once
  std::vector<Choice> choices;       ///< the library's own first
  /// us per call, by choice, then by size; nothing where a choice was given up.
  std::vector<std::vector<std::optional<double>>> us;

  Figures(std::vector<std::uint64_t> the_sizes, std::vector<Choice> the_choices);
  /// Of all choices so far.
  [[nodiscard]] std::optional<double> best(std::size_t size) const;
};

/// Whether a choice took so long at a size that it is not worth measuring at larger ones, where the bytes
/// determine the time.
[[nodiscard]] bool is_far_slower(const Figures& figures, std::size_t choice, std::size_t size);

/// An earlier choice that is the same at this size, so that it need not be measured again: both have chunks
/// that hold the whole message.
[[nodiscard]] std::optional<std::size_t> equivalent(const Figures& figures, std::size_t choice,
                                                    std::size_t size);

/// The choices between which a size is still open: those within 10% of the fastest, at most 4, the fastest first, and the
/// library's own. The fastest may only have been lucky, and the library's own unlucky, so all of them are measured again. If there
/// is one only, the size is decided.
[[nodiscard]] std::vector<std::size_t> finalists(const Figures& figures, std::size_t size);

struct Winner {
  std::uint64_t bytes = 0;
  std::size_t choice = 0;
  double us = 0;
  double default_us = 0;
};

/// The fastest choice of every size. Among choices that differ by less than the noise of measuring: the
/// library's own, else that of the previous size.
[[nodiscard]] std::vector<Winner> pick_winners(const Figures& figures);

/// Adjacent sizes with the same winner become one row, which reaches to the largest of them; the last row has
/// no limit. `like` says for which calls.
[[nodiscard]] std::vector<TuningRow> merge(const Figures& figures, const std::vector<Winner>& winners,
                                           const TuningRow& like);

}  // namespace onehop::cli
