// SPDX-License-Identifier: Apache-2.0
// Launches of the kernels that use point-to-point channels.
#pragma once

#include <cstddef>

#include "backend/cuda/algorithm.h"
#include "backend/cuda/algorithms/point_to_point/point_to_point.h"
#include "call/call.h"

namespace onehop::cuda {

extern const DeviceAlgorithm kPointToPoint;
extern const ScratchRegion kChannelScratch;

/// The longest message that travels by packed LL. With more ranks the limit holds for the sum of what a rank
/// sends to all peers.
[[nodiscard]] constexpr std::size_t max_packed_bytes(std::size_t ranks) {
  return ceil_div((std::size_t{4} << 20) / std::max<std::size_t>(ranks - 1, 1), kPackedDataBytes) *
         kPackedDataBytes;
}

/// Cuts into chunks for at most `most` rings, with `slot` bytes in each of their slots. Takes as few rounds as
/// possible, all of them full. No ring has more chunks than another, except for the remainder.
[[nodiscard]] constexpr MessageShape cut_into_chunks(std::size_t bytes, std::size_t slot, unsigned most) {
  const std::size_t rounds = bytes / (most * slot) + (bytes % (most * slot) != 0 ? 1 : 0);
  const std::size_t parts = most * std::max<std::size_t>(rounds, 1);
  const std::size_t share = ((bytes + parts - 1) / parts + 511) / 512 * 512;  // at least one packet per lane
  const std::size_t chunk = std::clamp(share, std::min<std::size_t>(1 << 10, slot), slot);
  return {.route = Route::ring,
          .chunk = static_cast<std::uint32_t>(chunk),
          .rings = static_cast<std::uint32_t>(std::min<std::size_t>(most, (bytes + chunk - 1) / chunk))};
}

/// The pieces of a message, one for every rank but the root.
class Pieces {
 public:
  Pieces(int ranks, Rank root, std::size_t bytes)
      : ranks_(ranks),
        root_(root.value),
        total_(bytes),
        piece_(ceil_div(ceil_div(bytes, static_cast<std::size_t>(ranks) - 1), 16) * 16) {}

  [[nodiscard]] std::size_t begin(int r) const {
    return std::min(total_, static_cast<std::size_t>((r - root_ - 1 + ranks_) % ranks_) * piece_);
  }
  [[nodiscard]] std::size_t bytes(int r) const { return std::min(piece_, total_ - begin(r)); }

 private:
  int ranks_;
  int root_;
  std::size_t total_;
  std::size_t piece_;
};

/// One launch: what this rank sends and receives.
class ChannelLaunch {
 public:
  ChannelLaunch(Launcher& launcher, DeviceFault::Phase phase);

  ChannelParams params;

  /// Data of the user's memory. Sender and receiver pass the same shape.
  void send(int peer, const std::byte* data, std::size_t bytes, const MessageShape& shape);
  void receive(int peer, std::byte* data, std::size_t bytes, DType type, const MessageShape& shape);
  /// Data that the kernel reduces or forwards: it does not come from the user's memory, or does not go there.
  void forward(int peer, std::size_t bytes, const MessageShape& shape);
  void take(int peer, std::size_t bytes, const MessageShape& shape);

  /// Cuts into chunks for at most `most` rings.
  [[nodiscard]] MessageShape cut(std::size_t bytes, unsigned most) const;
  /// The entry of ChannelParams::pairs of another rank.
  [[nodiscard]] std::size_t entry(int other) const { return entry(launcher_.rank(), other); }
  /// Lets several warps share each ring of reduced or forwarded data where that pays off. These warps and
  /// `rows` other rows of rings stay within the number that may wait (sync/call.cuh), in blocks of `warps`
  /// warps.
  void share_rings(unsigned warps, int rows);

  /// The launch shape for these rings, in blocks of `warps` warps with a ring each. The grid also has threads
  /// for `packets` LL packets. Sets the rows of the parameters.
  [[nodiscard]] LaunchShape shape_rows(unsigned warps, std::size_t packets);

 private:
  [[nodiscard]] std::size_t entry(int rank, int other) const {
    return static_cast<std::size_t>((other - rank - 1 + launcher_.size()) % launcher_.size());
  }

  Launcher& launcher_;
  bool sends_ = false;     ///< through rings, from the user's memory
  bool receives_ = false;  ///< through rings, to the user's memory
};

/// Warps per block with rings. With 2 ranks, few large blocks are faster. With more ranks, more small blocks
/// are faster, because they spread evenly over the multiprocessors (bench/results/gpu-kernels.md).
[[nodiscard]] constexpr unsigned ring_warps(int ranks) {
  return ranks == 2 ? kChannelWarps : 4;
}

/// Queues transfers between pairs of ranks. Pairs without bytes to move take no part.
void exchange(Launcher& launcher, const Transfers& transfers, DeviceFault::Phase phase);

}  // namespace onehop::cuda
