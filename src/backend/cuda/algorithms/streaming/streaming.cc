// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/algorithms/streaming/streaming.h"

#include <algorithm>
#include <array>

#include "backend/cuda/algorithm.h"
#include "backend/cuda/algorithms/point_to_point/channel_launch.h"
#include "backend/cuda/algorithms/push/push.h"
#include "backend/cuda/algorithms/push/push_algorithms.h"

namespace onehop::cuda {
namespace {

constexpr std::size_t kWarp = 32;
constexpr std::size_t kCreditThreads = kCreditWarps * kWarp;
/// One-shot: the fewest threads of a block.
constexpr std::size_t kFewestThreads = 64;
/// One-shot: the longest message beside which the next kernel may start (sync/call.cuh). It is worth up to 4%.
constexpr std::size_t kSoonBytes = 16 << 20;

constexpr ReductionKernel kOneShotKernel{"streaming_one_shot", TypeClass::any, 2};
constexpr ReductionKernel kReduceScatterKernel{"streaming_reduce_scatter", TypeClass::any, 2};
/// In one direction, like kMoveKernel.
constexpr ReductionKernel kReduceKernel{"streaming_reduce", TypeClass::any, 2};
constexpr ReductionKernel kTwoShotKernel{"streaming_two_shot"};
constexpr PlainKernel kExchangeKernel{"streaming_exchange"};
/// Between more than 2 ranks.
constexpr PlainKernel kExchangeAnyKernel{"streaming_exchange_any"};
constexpr PlainKernel kMoveKernel{"streaming_move"};

constexpr ScratchRegion kCreditScratch{[](const GroupShape& shape) {
  return shape.ranks == 1 ? std::size_t{0} : shape.blocks * sizeof(StreamCredits);
}};

/// How the Lamport buffers of a parity are cut: one-shot, rings by source; two-shot, two phases of these. The own rank has
/// none, which leaves more for the others.
Slots stream_slots(const GroupShape& shape, bool two_shot) {
  Slots slots = lamport_one_shot_slots(shape);
  slots.phase = two_shot ? slots.parity / 2 : slots.parity;
  // Rings begin at a line of the cache: with 64 MB and 4 ranks, rings that did not cost 7%.
  const std::size_t sources = static_cast<std::size_t>(std::max(1, shape.ranks - 1));
  slots.rank = slots.phase / (sources * kScratchAlignment) * kScratchAlignment;
  return slots;
}

/// How a message is spread over blocks and rings.
struct Plan {
  std::size_t blocks = 0;
  std::size_t movers = 0;   ///< threads of a block that move packets
  std::size_t threads = 0;  ///< of a block
  std::size_t depth = 0;    ///< chunks of a ring
  std::size_t slice = 0;    ///< packets of a block, in whole rows of a warp
  std::size_t ring = 0;     ///< packets of a ring
};

/// What a plan depends on besides the message.
struct PlanLimits {
  std::size_t capacity = 0;  ///< packets that the rings of one source have room for
  std::size_t blocks = 1;
  std::size_t threads = 0;
  bool spread = false;    ///< blocks of a short message have fewer threads
  std::size_t depth = 0;  ///< chunks of a ring that is reused, if there is room
  unsigned lag = 0;
};

/// `packets`: of the message, or of a piece.
Plan make_plan(std::size_t packets, const PlanLimits& limits) {
  Plan plan{.threads = limits.threads};
  const auto spread = [&](std::size_t blocks) {
    plan.slice = ceil_div(packets, blocks * kWarp) * kWarp;
    plan.blocks = ceil_div(packets, plan.slice);
  };
  // Small blocks start sooner, and are on more multiprocessors.
  if (limits.spread) {
    plan.threads = std::clamp(ceil_div(ceil_div(packets, limits.blocks), kWarp) * kWarp,
                              std::min(kFewestThreads, limits.threads), limits.threads);
  }
  // Every packet has a place of its own, if there is room. Longer rings would only take more of the L2 cache.
  plan.movers = plan.threads;
  spread(std::clamp<std::size_t>(ceil_div(packets, plan.movers), 1, limits.blocks));
  plan.depth = ceil_div(plan.slice, plan.movers);
  plan.ring = plan.slice;
  if (plan.depth <= limits.depth && plan.blocks * plan.ring <= limits.capacity) return plan;
  // Otherwise rings are reused, and two warps exchange credits. Fewer movers leave room for deeper rings.
  const auto movers_of = [&](std::size_t chunks) { return limits.capacity / (chunks * kWarp) * kWarp; };
  const std::size_t least = least_depth(limits.lag);
  plan.movers =
      std::min(std::max(limits.threads, kCreditThreads + kWarp) - kCreditThreads,
               std::max(movers_of(limits.blocks * limits.depth), std::min(kWarp, movers_of(least))));
  plan.threads = plan.movers + kCreditThreads;
  const std::size_t chunks = limits.capacity / plan.movers;
  spread(std::min(limits.blocks, chunks / least));
  plan.depth = std::min(limits.depth, chunks / plan.blocks);
  plan.ring = plan.depth * plan.movers;
  return plan;
}

/// What a rank sends and keeps of a call by one-shot, or its whole input and output.
struct Blocks {
  const std::byte* in = nullptr;  ///< null: it sends nothing
  const std::byte* own = nullptr;
  std::byte* out = nullptr;  ///< null: it receives nothing that it keeps
  std::byte* own_out = nullptr;
  // Of exchanges between more than 2 ranks, in which every peer has a row of blocks: `in` and `out` are those of rank 0, and
  // the next ranks' are so many bytes further.
  std::size_t in_stride = 0;
  std::size_t out_stride = 0;
};

/// `launch`: (shape, params) queues the kernel, whose blocks have at most `most_threads`.
template <bool kTwoShot, class Launch>
void stream(Launcher& launcher, const CollectiveCall& call, const LaunchLimits& limits, const Blocks& blocks,
            bool escapes, unsigned most_threads, const Launch& launch) {
  const Slots slots = stream_slots(launcher.shape(), kTwoShot);
  // Packets with escapes have a byte of their own, behind the rings.
  const std::size_t capacity = slots.rank / (kStreamWidth + (escapes ? 1 : 0));
  const unsigned rows = blocks.out_stride == 0 ? 1 : static_cast<unsigned>(launcher.size()) - 1;
  const PlanLimits plan_limits{
      .capacity = capacity,
      .blocks = std::max(
          1u, std::min(limits.blocks.value_or(launcher.shape().blocks), launcher.shape().blocks) / rows),
      .threads = std::min(limits.threads.value_or(most_threads), most_threads),
      .spread = !kTwoShot && !limits.threads,
      .depth = kTwoShot ? kTwoShotDepth : kOneShotDepth,
      .lag = kTwoShot ? kTwoShotLag : kOneShotLag};
  StreamParams params;
  params.rank = launcher.rank();
  params.size = launcher.size();
  params.root = call.collective == Collective::reduce ? call.root.value : kNoRoot;
  params.phase = DeviceFault::phase_of(call.collective);
  // Nothing is aligned, too.
  params.aligned = is_aligned(blocks.in) && is_aligned(blocks.own) && is_aligned(blocks.out) &&
                   is_aligned(blocks.own_out) && (blocks.in_stride | blocks.out_stride) % kStreamWidth == 0;
  params.poison = blocks.out != nullptr && launcher.poisons(call.type);
  params.counter = launcher.head<EpochCounter>(kLamportScratch, launcher.rank());
  params.inbox = launcher.scratch(kLamportScratch, launcher.rank()) + slots.begin;
  for (int step = 1; step < launcher.size(); ++step) {
    const int peer = launcher.right(step);
    const int source = launcher.rank() > peer ? launcher.rank() - 1 : launcher.rank();
    params.outbox[step] =
        launcher.scratch(kLamportScratch, peer) + slots.begin + static_cast<std::size_t>(source) * slots.rank;
  }
  params.peer_inbox = params.outbox[1];
  params.parity_stride = slots.parity;
  params.phase_stride = slots.phase;
  params.rank_stride = slots.rank;
  params.escapes = escapes ? capacity * kStreamWidth : 0;
  for (int r = 0; r < launcher.size(); ++r)
    params.credits[r] = launcher.head<StreamCredits>(kCreditScratch, r);
  params.in_stride = blocks.in_stride;
  params.out_stride = blocks.out_stride;
  params.guard = launcher.call_guard();
  params.scale = call.scale();
  const std::size_t pieces =
      kTwoShot ? static_cast<std::size_t>(launcher.size() - (params.root == kNoRoot ? 0 : 1)) : 1;
  const std::size_t bytes = call.block_bytes();
  const auto from = [](auto* block, std::size_t done) { return block == nullptr ? nullptr : block + done; };
  for (std::size_t done = 0; done < bytes; done += kStreamLaunchBytes) {
    params.in = from(blocks.in, done);
    params.own = from(blocks.own, done);
    params.out = from(blocks.out, done);
    params.own_out = from(blocks.own_out, done);
    params.bytes = std::min(bytes - done, kStreamLaunchBytes);
    const std::size_t packets = ceil_div(ceil_div(params.bytes, kStreamWidth), pieces);
    const Plan plan = make_plan(packets, plan_limits);
    params.packets = static_cast<std::uint32_t>(packets);
    params.whole = params.aligned ? static_cast<std::uint32_t>(params.bytes / kStreamWidth) : 0;
    params.early = plan.threads <= most_threads / 2;
    params.soon = !kTwoShot && params.bytes <= kSoonBytes;
    params.movers = static_cast<std::uint32_t>(plan.movers);
    params.depth = static_cast<std::uint32_t>(plan.depth);
    params.slice = static_cast<std::uint32_t>(plan.slice);
    params.block_stride = static_cast<std::uint32_t>(plan.ring * kStreamWidth);
    launch(LaunchShape{.grid = static_cast<unsigned>(plan.blocks),
                       .rows = rows,
                       .block = static_cast<unsigned>(plan.threads),
                       .lets_next_start = params.early},
           params);
  }
}

/// Where blocks are not whole packets, those behind the first one are not aligned, either. This is the longest such block
/// that point-to-point channels exchange, or the push algorithms reduce, in less time than a stream: an all-gather of 1028
/// bytes of bf16 takes 2.0 and 3.1 us, a reduce-scatter of 4 MB 10.4 and 13.1 (bench/results/gpu-kernels.md).
std::size_t longest_ragged(const CollectiveCall& call) {
  if (call.block_bytes() % kStreamWidth == 0 || call.collective == Collective::broadcast) return 0;
  if (call.collective == Collective::reduce_scatter)
    return type_class(call.type) == TypeClass::floats ? std::size_t{8} << 20 : kLLSlotBytes;
  return call.block_bytes() % sizeof(std::uint32_t) == 0 ? std::size_t{128} << 10 : std::size_t{4} << 20;
}

template <bool kTwoShot>
void run(Launcher& launcher, const CollectiveCall& call, const LaunchLimits& limits,
         const SymmetricOutput* /*output*/) {
  if (call.collective == Collective::reduce_scatter && call.block_bytes() <= longest_ragged(call)) {
    const bool floats = type_class(call.type) == TypeClass::floats;
    return (floats ? kLamportOneShot : kLLOneShot).run(launcher, call, limits, nullptr);
  }
  const ReductionKernel& kernel = kTwoShot                                    ? kTwoShotKernel
                                  : call.collective == Collective::all_reduce ? kOneShotKernel
                                  : call.collective == Collective::reduce     ? kReduceKernel
                                                                              : kReduceScatterKernel;
  const auto in_of = [&](int r) { return call.in_at(call.in_offset(r)); };
  // In two-shot the root sends its input, too.
  const bool sends = kTwoShot || call.collective != Collective::reduce || !call.gets_out();
  const Blocks blocks{.in = sends ? in_of(launcher.right(1)) : nullptr,
                      .own = in_of(launcher.rank()),
                      .out = call.gets_out() ? call.out_at() : nullptr};
  stream<kTwoShot>(
      launcher, call, limits, blocks, type_class(call.type) != TypeClass::floats,
      static_cast<unsigned>(max_threads(kernel.variant(launcher.size(), is_sum(call.op)))),
      [&](const LaunchShape& shape, StreamParams& params) { launcher.launch(kernel, call, shape, params); });
}

void run_exchange(Launcher& launcher, const CollectiveCall& call, const LaunchLimits& limits,
                  const SymmetricOutput* /*output*/) {
  const Transfers transfers = transfers_of(call);
  if (call.block_bytes() <= longest_ragged(call))
    return exchange(launcher, transfers, DeviceFault::phase_of(call.collective));
  const Transfer& own = transfers[static_cast<std::size_t>(launcher.rank())];
  Blocks blocks{.own = own.in, .own_out = own.sent == 0 || own.in == own.out ? nullptr : own.out};
  const bool pair = launcher.size() == 2;
  const Transfer& first = transfers[pair ? static_cast<std::size_t>(launcher.right(1)) : 0];
  blocks.in = pair && first.sent == 0 ? nullptr : first.in;
  blocks.out = pair && first.received == 0 ? nullptr : first.out;
  if (!pair) {
    blocks.in_stride = static_cast<std::size_t>(transfers[1].in - first.in);
    blocks.out_stride = static_cast<std::size_t>(transfers[1].out - first.out);
  }
  stream<false>(
      launcher, call, limits, blocks, true, static_cast<unsigned>(max_threads(2)),
      [&](const LaunchShape& shape, StreamParams& params) {
        const bool one_way = params.in == nullptr || params.out == nullptr;
        launcher.launch(one_way ? kMoveKernel : pair ? kExchangeKernel : kExchangeAnyKernel, shape, params);
      });
}

constexpr std::array kOneShotKernels{&kOneShotKernel, &kReduceScatterKernel, &kReduceKernel};
constexpr std::array kTwoShotKernels{&kTwoShotKernel};
constexpr std::array kExchangeKernels{&kExchangeKernel, &kExchangeAnyKernel};
constexpr std::array kMoveKernels{&kMoveKernel};
constexpr std::array kRegions{&kLamportScratch, &kCreditScratch};

}  // namespace

const DeviceAlgorithm kStreamingOneShot{
    {.name = "streaming_one_shot",
     .kind = Algorithm::one_shot,
     .collectives = {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter},
     .most_ranks = 2,
     .takes_blocks = true,
     .takes_threads = true},
    run<false>,
    kOneShotKernels,
    {},
    kRegions};
const DeviceAlgorithm kStreamingTwoShot{{.name = "streaming_two_shot",
                                         .kind = Algorithm::two_shot,
                                         .collectives = {Collective::all_reduce, Collective::reduce},
                                         .takes_blocks = true,
                                         .takes_threads = true},
                                        run<true>,
                                        kTwoShotKernels,
                                        {},
                                        kRegions};

const DeviceAlgorithm kStreamingExchange{{.name = "streaming_exchange",
                                          .kind = Algorithm::one_shot,
                                          .collectives = {Collective::all_gather, Collective::all_to_all},
                                          .takes_blocks = true,
                                          .takes_threads = true},
                                         run_exchange,
                                         {},
                                         kExchangeKernels,
                                         kRegions};

const DeviceAlgorithm kStreamingOneWay{
    {.name = "streaming_one_way",
     .kind = Algorithm::one_shot,
     .collectives = {Collective::broadcast, Collective::gather, Collective::scatter},
     .most_ranks = 2,
     .takes_blocks = true,
     .takes_threads = true},
    run_exchange,
    {},
    kMoveKernels,
    kRegions};

}  // namespace onehop::cuda
