// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/pipelined_two_shot/pipelined_two_shot.h"

#include <algorithm>
#include <array>
#include <bit>

#include "backend/cuda/algorithm.h"
#include "backend/cuda/algorithms/algorithms.h"

namespace onehop::cuda {
namespace {

// A block handles at least this many bytes of each piece at a time, since a release costs microseconds. If the
// message is long enough there are this many chunks, so that the links do not wait for the additions.
constexpr std::size_t kMinChunk = 4 << 10;
constexpr std::size_t kChunksPerBlock = 4;
constexpr std::size_t kLeastChunk = 512;  // a packet for every lane of a warp

constexpr ReductionKernel kKernel{"pipelined_two_shot"};

/// The largest chunk.
std::size_t slot_bytes(const GroupShape& shape) {
  // Chunk sizes that are no power of two are slower, by 7% with 7.5 KiB.
  const std::size_t chunk =
      std::bit_floor(shape.staging_bytes / (static_cast<std::size_t>(shape.ranks) * 128 * kPipelineDepth));
  return std::max(chunk, kLeastChunk);
}

/// Two phases: by source, by owner. `parity` leads from one slot of a block's ring to the next.
Slots slots_of(const GroupShape& shape) {
  const std::size_t slot = static_cast<std::size_t>(shape.ranks) * slot_bytes(shape);
  return {.begin = align_scratch(sizeof(PipelineHead)),
          .parity = slot,
          .phase = slot * kMaxPipelineBlocks * kPipelineDepth,
          .rank = slot_bytes(shape)};
}

constexpr ScratchRegion kScratch{[](const GroupShape& shape) {
  const Slots slots = slots_of(shape);
  return shape.ranks == 1 ? 0 : slots.begin + 2 * slots.phase;
}};

void run(Launcher& launcher, const CollectiveCall& call, const LaunchLimits& limits,
         const SymmetricOutput* /*output*/) {
  const auto ranks = static_cast<std::size_t>(launcher.size());
  const Slots slots = slots_of(launcher.shape());
  PipelineParams params;
  params.in = call.in_at();
  params.out = call.out_at();
  params.bytes = call.block_bytes();
  params.rank = launcher.rank();
  params.size = launcher.size();
  params.aligned = is_aligned(call.in_at()) && is_aligned(call.out_at());
  params.piece = ceil_div(params.bytes, ranks * 16) * 16;
  for (int r = 0; r < launcher.size(); ++r) params.heads[r] = launcher.head<PipelineHead>(kScratch, r);
  params.inbox = launcher.scratch(kScratch, launcher.rank()) + slots.begin;
  for (int step = 1; step < launcher.size(); ++step) {
    params.outbox[step] = launcher.scratch(kScratch, launcher.right(step)) + slots.begin +
                          static_cast<std::size_t>(launcher.rank()) * slots.rank;
  }
  params.slot_stride = slots.parity;
  params.phase_stride = slots.phase;
  params.rank_stride = slots.rank;
  params.poison = launcher.poisons(call.type);
  params.guard = launcher.call_guard();
  params.scale = call.scale();

  const std::size_t blocks = std::min(
      {limits.blocks.value_or(launcher.shape().blocks), launcher.shape().blocks, kMaxPipelineBlocks});
  const std::size_t part = ceil_div(params.piece, blocks);
  const std::size_t chunk =
      std::max({ceil_div(part, kChunksPerBlock), std::min(part, kMinChunk), kLeastChunk});
  params.chunk = std::min(std::bit_ceil(chunk), slots.rank);
  launcher.launch(
      kKernel, call,
      {.grid =
           static_cast<unsigned>(std::clamp(ceil_div(params.piece, params.chunk), std::size_t{1}, blocks)),
       .block = static_cast<unsigned>(warp_roles(kernel_ranks(launcher.size(), is_sum(call.op))).threads())},
      params);
}

constexpr std::array kKernels{&kKernel};
constexpr std::array kRegions{&kScratch};

}  // namespace

const DeviceAlgorithm kPipelinedTwoShot{{.name = "pipelined_two_shot",
                                         .kind = Algorithm::two_shot,
                                         .collectives = {Collective::all_reduce},
                                         .takes_blocks = true},
                                        run,
                                        kKernels,
                                        {},
                                        kRegions};

}  // namespace onehop::cuda
