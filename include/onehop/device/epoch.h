// SPDX-License-Identifier: Apache-2.0
// The counter behind epochs, as plain data. Free of CUDA headers; the functions are in epoch.cuh.
#pragma once

#include <cstdint>

namespace onehop {

/// Counts the kernels that have used a piece of memory. It lies in device memory, so that graph replays
/// continue the count. Every rank has its own; peers do not access it. Zeroed memory is a new counter.
struct EpochCounter {
  std::uint64_t epoch;     ///< of the last kernel that started; grows by one per kernel
  std::uint32_t arrivals;  ///< blocks of the running kernel that have read the epoch
};

}  // namespace onehop
