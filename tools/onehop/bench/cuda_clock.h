// SPDX-License-Identifier: Apache-2.0
// Kernels of the benchmark: a common start of all ranks, and time stamps of the GPU clock.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "onehop/device/view.h"

namespace onehop::cli {

inline constexpr int kClockRounds = 8;

/// The stamps of one rank for one isolated call, see IsolatedStamps (plan.h).
struct ClockRecord {
  std::uint64_t arrived;
  std::uint64_t done;
  std::uint64_t asked[kMaxDevices][kClockRounds];
  std::uint64_t answered[kMaxDevices][kClockRounds];
};

/// In device memory. The kernels count the calls, so that one graph serves all samples.
struct ClockLog {
  ClockRecord* records = nullptr;
  const std::uint32_t* delays_ns = nullptr;  ///< the delay of this rank before each call
  std::uint32_t* next = nullptr;
  std::uint32_t capacity = 0;
};

/// Loads the kernels on the current device. No kernel may be loaded while another one spins.
[[nodiscard]] cudaError_t load_clock_kernels();

/// Spins for `delay_ns` (at most 10 ms), then waits for the kernels of the other ranks in a barrier. The wait
/// ends with the timeout of the view, after which the group has failed.
[[nodiscard]] cudaError_t launch_start_together(const DeviceView& view, std::uint64_t delay_ns,
                                                cudaStream_t stream);
/// Compares clocks with the other ranks, passes a barrier, spins for the delay of the call, and records the
/// arrival.
[[nodiscard]] cudaError_t launch_arrive(const DeviceView& view, const ClockLog& log, cudaStream_t stream);
/// Records the end.
[[nodiscard]] cudaError_t launch_finish(const ClockLog& log, cudaStream_t stream);

}  // namespace onehop::cli
