// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/streaming_one_shot/streaming_one_shot.h"

#include <algorithm>
#include <array>

#include "backend/cuda/algorithms/algorithms.h"
#include "backend/cuda/algorithms/push/push_algorithms.h"

namespace onehop::cuda {
namespace {

constexpr std::size_t kWarp = 32;
constexpr std::size_t kCreditThreads = kCreditWarps * kWarp;

constexpr ReductionKernel kKernel{"streaming_one_shot", TypeClass::floats};

constexpr ScratchRegion kCreditScratch{[](const GroupShape& shape) {
  return shape.ranks == 1 ? std::size_t{0} : shape.blocks * sizeof(StreamCredits);
}};

/// How a message is spread over blocks and rings.
struct Plan {
  std::size_t blocks = 0;
  std::size_t movers = 0;   ///< threads of a block that move packets
  std::size_t threads = 0;  ///< of a block
  std::size_t depth = 0;    ///< chunks of a ring
  std::size_t slice = 0;    ///< packets of a block, in whole rows of a warp
};

/// `packets`: of the message. `at_once`: packets of a chunk that a thread moves. `capacity`: packets that the rings of
/// one source have room for.
Plan make_plan(std::size_t packets, std::size_t at_once, std::size_t capacity, std::size_t most_blocks,
               std::size_t threads) {
  Plan plan{.threads = threads};
  const auto spread = [&](std::size_t blocks) {
    plan.slice = ceil_div(packets, blocks * kWarp) * kWarp;
    plan.blocks = ceil_div(packets, plan.slice);
  };
  // Every chunk has a place of its own, if there is room.
  plan.movers = threads;
  spread(std::clamp<std::size_t>(ceil_div(packets, threads * at_once), 1, most_blocks));
  plan.depth = ceil_div(plan.slice, threads * at_once);
  if (plan.depth <= kMostDepth && plan.blocks * plan.depth * threads * at_once <= capacity) return plan;
  // Otherwise rings are reused, and two warps exchange credits.
  plan.movers = std::min(std::max(threads, kCreditThreads + kWarp) - kCreditThreads,
                         capacity / (at_once * kLeastDepth * kWarp) * kWarp);
  plan.threads = plan.movers + kCreditThreads;
  const std::size_t chunks = capacity / (plan.movers * at_once);
  spread(std::min(most_blocks, chunks / kLeastDepth));
  plan.depth = std::min<std::size_t>(kMostDepth, chunks / plan.blocks);
  return plan;
}

void run_streaming_one_shot(Launcher& launcher, const CollectiveCall& call, const LaunchLimits& limits,
                            const SymmetricOutput* /*output*/) {
  const int variant = kernel_ranks(launcher.size(), is_sum(call.op));
  const auto most_threads = static_cast<unsigned>(max_threads(variant));
  const auto at_once = static_cast<std::size_t>(stream_packets(variant));
  const std::size_t threads = std::min(limits.threads.value_or(most_threads), most_threads);
  const std::size_t most_blocks =
      std::min(limits.blocks.value_or(launcher.shape().blocks), launcher.shape().blocks);
  const Slots slots = lamport_one_shot_slots(launcher.shape());
  StreamParams params;
  params.rank = launcher.rank();
  params.size = launcher.size();
  params.aligned = is_aligned(call.in_at()) && is_aligned(call.out_at());
  params.poison = launcher.poisons(call.type);
  params.counter = launcher.head<EpochCounter>(kLamportScratch, launcher.rank());
  params.inbox = launcher.scratch(kLamportScratch, launcher.rank()) + slots.begin;
  for (int step = 1; step < launcher.size(); ++step) {
    params.outbox[step] = launcher.scratch(kLamportScratch, launcher.right(step)) + slots.begin +
                          static_cast<std::size_t>(launcher.rank()) * slots.rank;
  }
  params.parity_stride = slots.parity;
  params.rank_stride = slots.rank;
  for (int r = 0; r < launcher.size(); ++r)
    params.credits[r] = launcher.head<StreamCredits>(kCreditScratch, r);
  params.guard = launcher.call_guard();
  params.scale = call.scale();
  const std::size_t bytes = call.block_bytes();
  for (std::size_t done = 0; done < bytes; done += kStreamLaunchBytes) {
    params.in = call.in_at(done);
    params.out = call.out_at(done);
    params.bytes = std::min(bytes - done, kStreamLaunchBytes);
    params.packets = ceil_div(params.bytes, kStreamWidth);
    const Plan plan = make_plan(params.packets, at_once, slots.rank / kStreamWidth, most_blocks, threads);
    params.early = plan.threads <= most_threads / 2;
    params.movers = static_cast<std::uint32_t>(plan.movers);
    params.depth = static_cast<std::uint32_t>(plan.depth);
    params.slice = plan.slice;
    params.block_stride = plan.depth * plan.movers * at_once * kStreamWidth;
    launcher.launch(
        kKernel, call,
        {.grid = static_cast<unsigned>(plan.blocks), .block = static_cast<unsigned>(plan.threads)}, params);
  }
}

constexpr std::array kKernels{&kKernel};
constexpr std::array kRegions{&kLamportScratch, &kCreditScratch};

}  // namespace

const DeviceAlgorithm kStreamingOneShot{{.name = "streaming_one_shot",
                                         .kind = Algorithm::one_shot,
                                         .collectives = {Collective::all_reduce},
                                         .types = TypeClass::floats,
                                         .takes_blocks = true,
                                         .takes_threads = true},
                                        run_streaming_one_shot,
                                        kKernels,
                                        {},
                                        kRegions};

}  // namespace onehop::cuda
