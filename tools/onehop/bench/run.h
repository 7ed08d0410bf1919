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
  /// The figures of size number `index` so far, after each round; `last` after the last one.
  std::function<void(const BenchRow& row, std::size_t index, bool last)> row;
  std::function<void(const GpuMachine&)> gpus;  ///< once, before the first row
  std::function<void(const std::string&)> note;
  /// The run ends with this error. Called before the clean-up, which can take long on GPUs.
  std::function<void(const Error&)> failing;
};

/// Collective: every rank of the group calls it with the same options. Verifies each size before it is timed;
/// a wrong result is the same Error on every rank, naming rank, element, expected and actual value. Every
/// rank gets every row; only one should print them.
void run_collective_bench(Group& group, const BenchOptions& options, const BenchListener& listener);
/// The same for a group of GPUs. A build without CUDA has a stand-in (no_cuda.cc).
void run_gpu_bench(Group& group, const BenchOptions& options, const BenchListener& listener);

}  // namespace onehop::cli
