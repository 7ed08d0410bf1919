// SPDX-License-Identifier: Apache-2.0
// User kernels for tests: their parameters, for both compilers.
#pragma once

#include <cstdint>

#include "onehop/device/view.h"

namespace onehop::testing {

/// user_ring: block b of every rank writes `words` words to its right neighbor, passes a barrier on channel
/// b, and checks what its left neighbor wrote; `rounds` times. user_signals does the same with signals on
/// channels 2 b and 2 b + 1 to and from its neighbors only.
struct RingParams {
  DeviceView view;
  std::uint32_t words = 0;
  std::uint32_t rounds = 0;
  std::uint32_t* wrong = nullptr;    ///< counts words with wrong values
  std::uint32_t* gave_up = nullptr;  ///< counts blocks whose barrier failed
};

/// user_misuse: one warp that passes a channel or rank, possibly out of range, to one of the functions that
/// take them.
struct MisuseParams {
  enum Function { put_signal, wait_signal, barrier, barrier_relaxed, put_tile, wait_tile };
  static constexpr int kFunctions = 6;

  DeviceView view;
  int function = 0;
  int rank = 0;
  int channel = 0;
  std::uint32_t* returned = nullptr;  ///< 1 + what the function returned; 1 where it returns nothing
};

/// user_delay: one thread that does nothing for a while.
struct DelayParams {
  std::uint64_t nanoseconds = 0;
};

}  // namespace onehop::testing
