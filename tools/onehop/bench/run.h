// SPDX-License-Identifier: Apache-2.0
// One rank's part of a benchmark.
#pragma once

#include <functional>
#include <string_view>

#include "onehop/group.h"

#include "bench/bench.h"

namespace onehop::cli {

struct BenchListener {
  std::function<void(std::string_view what)> progress;
  std::function<void(const BenchRow&)> row;
  std::function<void(const GpuMachine&)> gpus;  ///< once, before the first row
  std::function<void(const std::string&)> note;
  /// The run ends with this error, and nothing has been cleaned up yet: on GPUs that may take its time.
  std::function<void(const Error&)> failing;
};

/// Collective: every rank of the group calls it with the same options. Verifies each size before it is timed;
/// a wrong result is the same Error on every rank, naming rank, element, expected and actual value. Every
/// rank gets every row; only one should print them.
void run_collective_bench(Group& group, const BenchOptions& options, const BenchListener& listener);

}  // namespace onehop::cli
