// SPDX-License-Identifier: Apache-2.0
// The handle types by which a rank can share its GPU's memory, as sent to the other ranks.
#pragma once

#include <cstdint>
#include <string>

#include "onehop/types.h"

namespace onehop {

/// A set of handle types: bit n stands for the ShareBy with value n.
struct ShareMethods {
  std::uint8_t usable = 0;
  /// The device's cluster and clique: fabric handles work only between devices with the same ones.
  std::string fabric{};

  [[nodiscard]] bool has(ShareBy share_by) const {
    return (usable >> static_cast<unsigned>(share_by) & 1U) != 0;
  }
  void add(ShareBy share_by) {
    usable = static_cast<std::uint8_t>(usable | 1U << static_cast<unsigned>(share_by));
  }

  bool operator==(const ShareMethods&) const = default;
};

/// Returns the handle types that work for memory of `device`: all of them for ShareBy::automatic, otherwise
/// only `wanted`. Throws Error{unsupported} with the reason if `wanted` names a type that does not work.
[[nodiscard]] ShareMethods share_methods(DeviceId device, ShareBy wanted);

}  // namespace onehop
