// SPDX-License-Identifier: Apache-2.0
// The push algorithms, and what others use of them: their Lamport buffers, and all-reduces that share a launch.
#pragma once

#include <cstddef>
#include <span>

#include "backend/cuda/algorithm.h"
#include "backend/cuda/algorithms/push/push.h"

namespace onehop::cuda {

extern const DeviceAlgorithm kLLOneShot;
extern const DeviceAlgorithm kLamportOneShot;
extern const DeviceAlgorithm kLamportTwoShotByPeer;
extern const DeviceAlgorithm kLamportTwoShot;
extern const DeviceAlgorithm kAlone;

/// Bytes of an LL packet.
inline constexpr std::size_t kLLWidth = 8;
/// Packets that fit a launch of run_fused(), and those that a message takes.
inline constexpr std::size_t kMaxFusedPackets = kLLSlotBytes / kLLWidth;
[[nodiscard]] constexpr std::size_t fused_packets(std::size_t bytes) {
  return ceil_div(bytes, kLLWidth);
}
/// Lamport buffers: one region per parity. One-shots cut it into a slot per source, two-shots into two phases with a
/// slot per rank each. Whatever uses them leaves them empty and advances the EpochCounter at the start of the region.
extern const ScratchRegion kLamportScratch;
/// How one-shots cut it.
[[nodiscard]] Slots lamport_one_shot_slots(const GroupShape& shape);

/// Queues all-reduces that share one launch of ll_one_shot. At most kMaxFused of them are not empty, and
/// together they take at most kMaxFusedPackets.
void run_fused(Launcher& launcher, std::span<const CollectiveCall> calls);

}  // namespace onehop::cuda
