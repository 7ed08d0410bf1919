// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/scatter_all_gather/scatter_all_gather.h"

#include <array>

#include "backend/cuda/algorithms/point_to_point/channel_launch.h"

namespace onehop::cuda {
namespace {

constexpr PlainKernel kKernel{"scatter_all_gather"};

/// For more than 2 ranks: each rank but the root forwards a piece.
void run(Launcher& launcher, const CollectiveCall& call, const LaunchLimits& /*limits*/,
         const SymmetricOutput* /*output*/) {
  const int rank = launcher.rank();
  const int root = call.root.value;
  const std::size_t bytes = call.block_bytes();
  ChannelLaunch launch(launcher, DeviceFault::phase_of(call.collective));
  ChannelParams& params = launch.params;
  const Pieces pieces(launcher.size(), call.root, bytes);
  const auto cut = [&](int r) {
    return launch.cut(pieces.bytes(r),
                      launcher.shape().blocks * kChannelWarps / static_cast<unsigned>(launcher.size() - 1));
  };
  for (int r = 0; r < launcher.size(); ++r) {
    if (r == root || r == rank) continue;
    if (rank == root) {
      launch.send(r, call.in_at(pieces.begin(r)), pieces.bytes(r), cut(r));
    } else {
      launch.forward(r, pieces.bytes(rank), cut(rank));
      launch.receive(r, call.out_at(pieces.begin(r)), pieces.bytes(r), call.type, cut(r));
    }
  }
  if (rank == root) {
    params.in = call.in_at();
    params.out = call.out_at();
    params.bytes = call.in_at() == call.out_at() ? 0 : bytes;
  } else {
    launch.take(root, pieces.bytes(rank), cut(rank));
    params.root = static_cast<int>(launch.entry(root));
    params.out = call.out_at(pieces.begin(rank));
    params.poison = launcher.poisons(call.type);
    params.bytes = pieces.bytes(rank);
    params.own_shape = cut(rank);
    launch.share_rings(kChannelWarps, launcher.size() - 2);
  }
  const LaunchShape shape = launch.shape_rows(ring_warps(launcher.size()), 0);
  launcher.launch(kKernel, shape, params);
}

constexpr std::array kPlainKernels{&kKernel};
constexpr std::array kRegions{&kChannelScratch};

}  // namespace

const DeviceAlgorithm kScatterAllGather{{.name = "scatter_all_gather",
                                         .kind = Algorithm::one_shot,
                                         .collectives = {Collective::broadcast},
                                         .least_ranks = 3},
                                        run,
                                        {},
                                        kPlainKernels,
                                        kRegions};

}  // namespace onehop::cuda
