// SPDX-License-Identifier: Apache-2.0
// The benchmark on GPUs, free of CUDA headers. Built without CUDA there is a stand-in (no_cuda.cc).
#pragma once

#include <string>

#include "onehop/group.h"

#include "bench/bench.h"
#include "bench/run.h"

namespace onehop::cli {

struct GpuCount {
  int count = 0;
  std::string why;  ///< when there are none
};

/// How many GPUs this process sees. The driver is initialised: a child that is forked afterwards cannot use
/// it.
[[nodiscard]] GpuCount count_gpus();

/// run_collective_bench for a group of GPUs.
void run_gpu_bench(Group& group, const BenchOptions& options, const BenchListener& listener);

}  // namespace onehop::cli
