// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/reduce_from_peers/reduce_from_peers.h"

#include <algorithm>
#include <array>

#include "backend/cuda/algorithms/point_to_point/channel_launch.h"

namespace onehop::cuda {
namespace {

constexpr ReductionKernel kKernel{"reduce_from_peers"};

/// Every rank that gets a result reduces what all others send to it: one block of a reduce_scatter, or the
/// message of a reduce.
void run(Launcher& launcher, const CollectiveCall& call, const LaunchLimits& /*limits*/,
         const SymmetricOutput* /*output*/) {
  const int rank = launcher.rank();
  const std::size_t bytes = call.block_bytes();
  const bool to_all = call.collective == Collective::reduce_scatter;
  const auto gets_result = [&](int r) { return to_all || r == call.root.value; };
  const auto part_of = [&](int r) { return call.in_at(call.in_offset(r)); };
  ChannelLaunch launch(launcher, DeviceFault::phase_of(call.collective));
  ChannelParams& params = launch.params;
  const auto warps = static_cast<unsigned>(max_threads(kernel_ranks(launcher.size(), is_sum(call.op)))) / 32;
  const MessageShape shape =
      launch.cut(bytes, launcher.shape().blocks * warps / static_cast<unsigned>(launcher.size()));
  for (int r = 0; r < launcher.size(); ++r) {
    if (r == rank) continue;
    if (gets_result(r)) launch.send(r, part_of(r), bytes, shape);
    if (gets_result(rank)) launch.take(r, bytes, shape);
  }
  if (gets_result(rank)) {
    params.in = part_of(rank);
    params.out = call.out_at();
    params.poison = launcher.poisons(call.type);
    params.bytes = bytes;
    params.own_shape = shape;
    launch.share_rings(warps, to_all ? launcher.size() - 1 : 0);
  }
  params.scale = call.scale();
  // With more than 2 ranks blocks are smaller, as in ring_warps(), but not as small as there.
  const LaunchShape grid = launch.shape_rows(std::min(warps, 2 * ring_warps(launcher.size())), 0);
  launcher.launch(kKernel, call, grid, params);
}

constexpr std::array kKernels{&kKernel};
constexpr std::array kRegions{&kChannelScratch};

}  // namespace

const DeviceAlgorithm kReduceFromPeers{{.name = "reduce_from_peers",
                                        .kind = Algorithm::one_shot,
                                        .collectives = {Collective::reduce, Collective::reduce_scatter}},
                                       run,
                                       kKernels,
                                       {},
                                       kRegions};

}  // namespace onehop::cuda
