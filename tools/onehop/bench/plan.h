// SPDX-License-Identifier: Apache-2.0
// How a size is measured on GPUs: pure functions of the options, so that all ranks decide alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/bench.h"

namespace onehop::cli {

/// Whether a call changes what the next one reads.
[[nodiscard]] bool feeds_back(const BenchOptions& options);

/// How many calls in a row keep random inputs (see check_data.h) finite when each reduces the result of the
/// one before; 0: the factor is so large that not even one does.
[[nodiscard]] int finite_calls(const BenchOptions& options);

/// Calls per sample: many where one is short, and few enough that a sample takes tens of milliseconds.
[[nodiscard]] int choose_calls(const BenchOptions& options, std::uint64_t bytes);
/// Samples per size.
[[nodiscard]] int choose_samples(const BenchOptions& options, std::uint64_t bytes);

/// Pairs of input and output that the calls of a sample take turns over: 1, or, for cold ones, as many as it
/// takes to touch more than twice the cache before one comes round again.
[[nodiscard]] int choose_slots(const BenchOptions& options, std::uint64_t bytes, std::uint64_t cache_bytes);

/// How long the ranks hold back a sample, so that it is queued everywhere when it begins.
[[nodiscard]] std::uint64_t head_start_ns(int calls);

/// Times of one GPU clock around an isolated call, in ns, as cuda_clock.h records them.
struct IsolatedStamps {
  std::uint64_t arrived = 0;
  std::uint64_t done = 0;
  /// Rank 0: when it asked, and when it had the answer. Rank r: when it was asked, in `asked[0]`. By peer and
  /// round.
  std::vector<std::vector<std::uint64_t>> asked;
  std::vector<std::vector<std::uint64_t>> answered;
};

struct IsolatedTime {
  double us = 0;              ///< from the last rank's arrival to the last rank's end
  double clock_error_us = 0;  ///< bound of the error that comparing clocks adds
};

/// `ranks[r]` holds rank r's stamps. The offset of a clock to rank 0's is taken from the quickest question
/// and answer: the question arrived in the middle of it, give or take half of what it took.
[[nodiscard]] IsolatedTime isolated_time(const std::vector<IsolatedStamps>& ranks);

}  // namespace onehop::cli
