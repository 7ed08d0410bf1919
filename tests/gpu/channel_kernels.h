// SPDX-License-Identifier: Apache-2.0
// User kernels for tests that pass data through channels and tiles: their parameters, for both compilers.
#pragma once

#include <cstdint>

#include "onehop/device/channel.h"

namespace onehop::testing {

/// exchange_packets, exchange_lamport: every rank sends every rank `words` words, which depend on all
/// parameters, and compares what it receives.
struct ExchangeParams {
  LLChannel packets{};
  LamportChannel lamport{};
  std::uint32_t words = 0;
  std::uint32_t width = 1;  ///< words per put: 1, 2 or 4
  bool together = false;    ///< takes from all ranks at once; otherwise from one rank, word by word
  std::uint32_t salt = 0;
  const std::uint32_t* round = nullptr;  ///< in device memory, so that replays differ
  std::uint32_t* wrong = nullptr;        ///< counts words with wrong values
  std::uint32_t* gave_up = nullptr;      ///< counts threads that gave up
};

/// pass_tiles: block b of every rank writes a tile of `bytes` bytes into its own part and puts it into its
/// right neighbor's. It then checks the tile that its left neighbor put; all this `rounds` times. Uses
/// channels 2 b and 2 b + 1.
struct TileParams {
  DeviceView view;
  std::uint32_t bytes = 0;
  std::uint32_t rounds = 0;
  std::uint32_t* wrong = nullptr;
  std::uint32_t* gave_up = nullptr;  ///< counts blocks that gave up
};

/// reduce_f32, reduce_f16, reduce_bf16: block b adds up the tile of `bytes` bytes at `offset` + b * `bytes`.
struct ReduceParams {
  DeviceView view;
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
  float* sums = nullptr;
  std::byte* rounded = nullptr;  ///< the sums, rounded to the element type
  std::uint32_t* gave_up = nullptr;
};

}  // namespace onehop::testing
