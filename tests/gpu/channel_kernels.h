// SPDX-License-Identifier: Apache-2.0
// Kernels of a user that pass data through channels and tiles, for tests: their parameters, for both
// compilers.
#pragma once

#include <cstdint>

#include "onehop/device/channel.h"

namespace onehop::testing {

/// exchange_packets, exchange_mail: every rank sends every rank `words` words that depend on all of this, and
/// compares what it receives.
struct ExchangeParams {
  PacketChannel packets{};
  MailChannel mail{};
  std::uint32_t words = 0;
  std::uint32_t width = 1;  ///< words that are put at a time: 1, 2 or 4
  bool together = false;    ///< takes from all ranks at a time, else from one and by the word
  std::uint32_t salt = 0;
  const std::uint32_t* round = nullptr;  ///< in device memory, so that replays differ
  std::uint32_t* wrong = nullptr;        ///< counts words that were not what they should be
  std::uint32_t* gave_up = nullptr;      ///< counts threads that did
};

/// pass_tiles: block b of every rank writes a tile of `bytes` bytes into its own part, puts it into its right
/// neighbour's, and looks at what its left neighbour put; `rounds` times. Channels 2 b and 2 b + 1.
struct TileParams {
  DeviceView view;
  std::uint32_t bytes = 0;
  std::uint32_t rounds = 0;
  std::uint32_t* wrong = nullptr;
  std::uint32_t* gave_up = nullptr;  ///< counts blocks
};

/// reduce_f32, reduce_f16, reduce_bf16: block b adds up the tile of `bytes` bytes at `offset` + b * `bytes`.
struct ReduceParams {
  DeviceView view;
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
  float* sums = nullptr;
  std::byte* rounded = nullptr;  ///< the same as elements of the type
  std::uint32_t* gave_up = nullptr;
};

}  // namespace onehop::testing
