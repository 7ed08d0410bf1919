// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "backend/cuda/algorithms/algorithms.h"
#include "backend/cuda/algorithms/point_to_point/channel_launch.h"

namespace onehop::cuda {
namespace {

constexpr ReductionKernel kKernel{"reduce_from_peers"};

/// The largest number of warps in a block of the kernel for this call.
unsigned max_warps(const Launcher& launcher, const CollectiveCall& call) {
  return static_cast<unsigned>(max_threads(kernel_ranks(launcher.size(), is_sum(call.op)))) / 32;
}

void launch_reduction(Launcher& launcher, const CollectiveCall& call, ChannelLaunch& launch) {
  launch.params.scale = call.scale();
  const unsigned warps = max_warps(launcher, call);
  // With more than 2 ranks blocks are smaller, as in ring_warps(), but not as small as there.
  const LaunchShape shape =
      launch.shape_rows(launcher.size() == 2 ? warps : std::min(warps, 2 * ring_warps(launcher.size())), 0);
  launcher.launch(kKernel, call, shape, launch.params);
}

/// Every rank that gets a result reduces what all others send to it: one block of a reduce_scatter, or the
/// message of a reduce.
void run_one_shot(Launcher& launcher, const CollectiveCall& call, const LaunchLimits& /*limits*/,
                  const SymmetricOutput* /*output*/) {
  const int rank = launcher.rank();
  const std::size_t bytes = call.block_bytes();
  const bool to_all = call.collective == Collective::reduce_scatter;
  const auto gets_result = [&](int r) { return to_all || r == call.root.value; };
  const auto part_of = [&](int r) { return call.in_at(call.in_offset(r)); };
  ChannelLaunch launch(launcher, DeviceFault::phase_of(call.collective));
  ChannelParams& params = launch.params;
  const unsigned warps = max_warps(launcher, call);
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
  launch_reduction(launcher, call, launch);
}

/// A reduce: each rank but the root reduces a piece and forwards it to the root.
void run_two_shot(Launcher& launcher, const CollectiveCall& call, const LaunchLimits& /*limits*/,
                  const SymmetricOutput* /*output*/) {
  const int rank = launcher.rank();
  const int root = call.root.value;
  ChannelLaunch launch(launcher, DeviceFault::phase_of(call.collective));
  ChannelParams& params = launch.params;
  const unsigned warps = max_warps(launcher, call);
  const Pieces pieces(launcher.size(), call.root, call.block_bytes());
  const auto cut = [&](int r) {
    return launch.cut(pieces.bytes(r),
                      launcher.shape().blocks * warps / static_cast<unsigned>(2 * (launcher.size() - 1)));
  };
  for (int r = 0; r < launcher.size(); ++r) {
    if (r == rank) continue;
    if (r == root) {
      launch.forward(r, pieces.bytes(rank), cut(rank));
      launch.take(r, pieces.bytes(rank), cut(rank));
      continue;
    }
    launch.send(r, call.in_at(pieces.begin(r)), pieces.bytes(r), cut(r));
    if (rank == root) {
      launch.receive(r, call.out_at(pieces.begin(r)), pieces.bytes(r), call.type, cut(r));
    } else {
      launch.take(r, pieces.bytes(rank), cut(rank));
    }
  }
  if (rank != root) {
    params.root = static_cast<int>(launch.entry(root));
    params.in = call.in_at(pieces.begin(rank));
    params.bytes = pieces.bytes(rank);
    params.own_shape = cut(rank);
    launch.share_rings(warps, launcher.size() - 2);
  }
  launch_reduction(launcher, call, launch);
}

constexpr std::array kKernels{&kKernel};
constexpr std::array kRegions{&kChannelScratch};

}  // namespace

const DeviceAlgorithm kReduceFromPeers{{.name = "reduce_from_peers",
                                        .kind = Algorithm::one_shot,
                                        .collectives = {Collective::reduce, Collective::reduce_scatter}},
                                       run_one_shot,
                                       kKernels,
                                       {},
                                       kRegions};
const DeviceAlgorithm kReduceAndForward{
    {.name = "reduce_and_forward", .kind = Algorithm::two_shot, .collectives = {Collective::reduce}},
    run_two_shot,
    kKernels,
    {},
    kRegions};

}  // namespace onehop::cuda
