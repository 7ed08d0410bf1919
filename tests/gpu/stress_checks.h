// SPDX-License-Identifier: Apache-2.0
// The kernels of stress_kernels.cu, as one rank queues them around its calls. Compiled only with CUDA.
#pragma once

#include "gpu/stress_plan.h"
#include "support/gpu.h"

namespace onehop::testing {

/// The checks of one rank of one group. Their findings are in device memory that `findings` points to.
class StressChecks {
 public:
  StressChecks(const Gpu& gpu, int rank, int ranks, const StressArena& arena, StressFindings* findings);

  /// Loads the kernels for a device: nothing may be loaded while a peer's kernel waits.
  static void load(DeviceId device);

  /// Queues the inputs of the chains that begin in `batch`, the comparison of its results, and the next
  /// round.
  void fill(const StressBatch& batch) const;
  void check(const StressBatch& batch) const;
  void advance() const;

 private:
  void launch(CUfunction kernel, const StressBatch& batch, bool one_thread, const char* what) const;

  const Gpu& gpu_;
  int rank_;
  int ranks_;
  StressArena arena_;
  StressFindings* findings_;
  CUfunction fill_;
  CUfunction check_;
  CUfunction advance_;
};

}  // namespace onehop::testing
