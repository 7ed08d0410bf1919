// SPDX-License-Identifier: Apache-2.0
// Which thread runs which calls of a GroupCall, if they wait on the host for other ranks.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "onehop/types.h"

namespace onehop {

/// The calls of one rank.
struct WaitingBatch {
  std::string_view group;  ///< its id, which all ranks of the group share
  DeviceId device;
  bool on_stream_of_thread = false;  ///< cudaStreamPerThread
};

/// Batches, by number, that one thread runs one after another.
using Lane = std::vector<std::size_t>;

/// Ranks may wait for each other, so each batch has a lane. But those on the calling thread's own stream of a device share
/// one: they run in order on all ranks anyway. Ranks of the same group never do. The calling thread runs the first lane, which
/// is of its own stream if any is.
[[nodiscard]] std::vector<Lane> to_lanes(std::span<const WaitingBatch> batches);

}  // namespace onehop
