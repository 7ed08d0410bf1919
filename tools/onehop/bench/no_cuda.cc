// SPDX-License-Identifier: Apache-2.0
// Replaces the CUDA sources in a build without a toolkit.
#include "base/check.h"
#include "bench/device.h"
#include "bench/run.h"

namespace onehop::cli {

GpuCount count_gpus() {
  return {0, "this onehop was built without CUDA"};
}

void run_gpu_bench(Group&, const BenchOptions&, const BenchListener&) {
  fail(ErrorCode::unsupported,
       "this onehop was built without CUDA; build it with a CUDA toolkit (make: CUDA=on)");
}

}  // namespace onehop::cli
