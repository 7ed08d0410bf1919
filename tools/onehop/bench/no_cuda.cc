// SPDX-License-Identifier: Apache-2.0
// In the place of the CUDA sources where no toolkit was found.
#include "base/check.h"
#include "bench/gpu.h"

namespace onehop::cli {

GpuCount count_gpus() {
  return {0, "this onehop was built without CUDA"};
}

void run_gpu_bench(Group&, const BenchOptions&, const BenchListener&) {
  fail(ErrorCode::unsupported, "this onehop was built without CUDA; build it where nvcc is");
}

}  // namespace onehop::cli
