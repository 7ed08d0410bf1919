// SPDX-License-Identifier: Apache-2.0
#include "gpu/stress_checks.h"

#include <algorithm>

#include "driver/device.h"
#include "driver/module.h"

ONEHOP_DEVICE_CODE(stress_kernels);

namespace onehop::testing {
namespace {

CUfunction kernel(DeviceId device, const char* name) {
  static auto& module = *new CudaModule(onehop_code_stress_kernels);
  return module.function(device, name);
}

}  // namespace

StressChecks::StressChecks(const Gpu& gpu, int rank, int ranks, const StressArena& arena,
                           StressFindings* findings)
    : gpu_(gpu),
      rank_(rank),
      ranks_(ranks),
      arena_(arena),
      findings_(findings),
      fill_(kernel(gpu.device(), "stress_fill")),
      check_(kernel(gpu.device(), "stress_check")),
      advance_(kernel(gpu.device(), "stress_advance")) {}

void StressChecks::load(DeviceId device) {
  for (const char* const name : {"stress_fill", "stress_check", "stress_advance"}) (void)kernel(device, name);
}

void StressChecks::launch(CUfunction kernel, const StressBatch& batch, bool one_thread,
                          const char* what) const {
  StressParams params;
  params.arena = arena_;
  params.findings = findings_;
  params.rank = rank_;
  params.ranks = ranks_;
  std::copy(batch.begin(), batch.end(), params.ops);
  const CurrentDevice current(gpu_.device());
  launch_kernel(cuda_driver(), kernel,
                {.grid = one_thread ? 1 : kStressBlocks * static_cast<unsigned>(batch.size()),
                 .block = one_thread ? 1u : 256u,
                 .stream = static_cast<CUstream>(gpu_.stream().handle)},
                params, what);
}

void StressChecks::fill(const StressBatch& batch) const {
  launch(fill_, batch, false, "stress_fill");
}
void StressChecks::check(const StressBatch& batch) const {
  launch(check_, batch, false, "stress_check");
}
void StressChecks::advance() const {
  launch(advance_, {}, true, "stress_advance");
}

}  // namespace onehop::testing
