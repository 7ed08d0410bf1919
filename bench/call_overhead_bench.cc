// SPDX-License-Identifier: Apache-2.0
// What every call pays for being seen while nobody looks: a range for profilers without a profiler, and a log
// line below the level. "empty" is the loop itself.
#include <benchmark/benchmark.h>

#include "base/log.h"
#include "base/range.h"

namespace onehop {
namespace {

void empty(benchmark::State& state) {
  for (auto _ : state) benchmark::ClobberMemory();
}
BENCHMARK(empty);

void range(benchmark::State& state) {
  start_ranges();
  for (auto _ : state) {
    const Range each("all_reduce");
    benchmark::ClobberMemory();
  }
}
BENCHMARK(range);

void debug_line(benchmark::State& state) {
  int number = 0;
  for (auto _ : state) {
    log::debug("call {}", number);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(debug_line);

}  // namespace
}  // namespace onehop

BENCHMARK_MAIN();
