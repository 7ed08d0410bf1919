// SPDX-License-Identifier: Apache-2.0
// How a size is measured on GPUs: pure functions of the options, so that all ranks make the same decisions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/bench.h"

namespace onehop::cli {

/// Whether a call changes the input of the next call.
[[nodiscard]] bool feeds_back(const BenchOptions& options);

/// The number of calls that keep random inputs (see check_data.h) finite when each reduces the result of the call
/// before; 0: the factor is too large even for one call.
[[nodiscard]] int finite_calls(const BenchOptions& options);

/// Calls per sample: many short calls or few long ones, so that a sample takes tens of milliseconds.
[[nodiscard]] int choose_calls(const BenchOptions& options, std::uint64_t bytes);
/// Samples per size.
[[nodiscard]] int choose_samples(const BenchOptions& options, std::uint64_t bytes);

/// Pairs of input and output that the calls of a sample use in turns: 1, or, for cold calls, as many as touch more
/// than twice the cache before the first is used again.
[[nodiscard]] int choose_slots(const BenchOptions& options, std::uint64_t bytes, std::uint64_t cache_bytes);

/// The delay before a sample, so that all ranks have queued it when it begins.
[[nodiscard]] std::uint64_t head_start_ns(int calls);

/// Stamps of one GPU clock around an isolated call, in ns, recorded by cuda_clock.h.
struct IsolatedStamps {
  std::uint64_t arrived = 0;
  std::uint64_t done = 0;
  /// By peer and round. Rank 0: the times of its question and of the answer. Rank r: the time it received the
  /// question, in `asked[0]`.
  std::vector<std::vector<std::uint64_t>> asked;
  std::vector<std::vector<std::uint64_t>> answered;
};

struct IsolatedTime {
  double us = 0;              ///< from the last rank's arrival to the last rank's end
  double clock_error_us = 0;  ///< bound of the error of the clock comparison
};

/// `ranks[r]` holds the stamps of rank r. The offset of a clock to that of rank 0 comes from the fastest round
/// trip: the question arrived in its middle, with an error of at most half its time.
[[nodiscard]] IsolatedTime isolated_time(const std::vector<IsolatedStamps>& ranks);

}  // namespace onehop::cli
