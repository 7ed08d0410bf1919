// SPDX-License-Identifier: Apache-2.0
// Kernels of the benchmark itself: beginning together, and stamps of the GPU's clock.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "onehop/device/view.h"

namespace onehop::cli {

inline constexpr int kClockRounds = 8;

/// What one rank records of one isolated call: see IsolatedStamps (plan.h).
struct ClockRecord {
  std::uint64_t arrived;
  std::uint64_t done;
  std::uint64_t asked[kMaxDevices][kClockRounds];
  std::uint64_t answered[kMaxDevices][kClockRounds];
};

/// In device memory. Kernels count the calls themselves, so that one graph serves all samples.
struct ClockLog {
  ClockRecord* records = nullptr;
  const std::uint32_t* delays_ns = nullptr;  ///< how long the rank holds back each call
  std::uint32_t* next = nullptr;
  std::uint32_t capacity = 0;
};

/// Loads the kernels on the current device: none may be loaded while one spins.
[[nodiscard]] cudaError_t load_clock_kernels();

/// Spins for `delay_ns` (at most 10 ms) and then waits for the other ranks' kernels. Waits end with the
/// view's timeout; the group has failed then.
[[nodiscard]] cudaError_t launch_start_together(const DeviceView& view, std::uint64_t delay_ns,
                                                cudaStream_t stream);
/// Compares clocks with the other ranks, meets them, spins for the call's delay, and records the arrival.
[[nodiscard]] cudaError_t launch_arrive(const DeviceView& view, const ClockLog& log, cudaStream_t stream);
/// Records the end.
[[nodiscard]] cudaError_t launch_finish(const ClockLog& log, cudaStream_t stream);

}  // namespace onehop::cli
