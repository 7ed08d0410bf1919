// SPDX-License-Identifier: Apache-2.0
// What a rank tells the others of how its GPU's memory can reach them.
#pragma once

#include <cstdint>
#include <string>

#include "onehop/types.h"

namespace onehop {

/// A set of ways: ShareBy `way` is bit `way`.
struct ShareWays {
  std::uint8_t usable = 0;
  std::string fabric{};  ///< where in the fabric the device is: handles reach devices of the same place only

  [[nodiscard]] bool has(ShareBy way) const { return (usable >> static_cast<unsigned>(way) & 1U) != 0; }
  void add(ShareBy way) { usable = static_cast<std::uint8_t>(usable | 1U << static_cast<unsigned>(way)); }

  bool operator==(const ShareWays&) const = default;
};

/// What works for memory of `device`, as far as `wanted` is concerned: all ways for ShareBy::automatic.
/// Error{unsupported} when `wanted` names one that does not work, with the reason.
[[nodiscard]] ShareWays share_ways(DeviceId device, ShareBy wanted);

}  // namespace onehop
