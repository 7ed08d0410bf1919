// SPDX-License-Identifier: Apache-2.0
// The push algorithms: ll_one_shot, lamport_one_shot, lamport_two_shot. LL packets carry any type for twice
// the bytes. Lamport buffers carry floating-point types for the bytes of the data, but each word must be
// cleared.
#include <algorithm>
#include <array>

#include "backend/cuda/algorithms/point_to_point/channel_launch.h"
#include "backend/cuda/algorithms/push/push_algorithms.h"

namespace onehop::cuda {
namespace {

/// The largest unneeded result that a rank writes in one launch.
constexpr std::size_t kDiscardBytes = std::size_t{4} << 20;

// Threads per block: small blocks start sooner and spread over more multiprocessors.
constexpr std::size_t kWarp = 32;
constexpr std::size_t kSmallBlock = 64;
constexpr std::size_t kOneBlock = 128;  // up to this many packets use one block
// Up to this many packets per multiprocessor each thread handles one. Up to twice as many, kernels that load two packets
// before they send them are faster with half as many threads that handle two packets each. Beyond that the maximum number
// of threads is faster.
constexpr std::size_t kMiddleBlock = 256;

constexpr ReductionKernel kLLOneShotKernel{"ll_one_shot"};
constexpr ReductionKernel kLLListKernel{"ll_one_shot_list"};
constexpr ReductionKernel kLLReduceScatterKernel{"ll_reduce_scatter"};
constexpr ReductionKernel kLamportOneShotKernel{"lamport_one_shot", TypeClass::floats};
constexpr ReductionKernel kLamportTwoShotKernel{"lamport_two_shot", TypeClass::floats};
constexpr ReductionKernel kLamportReduceScatterKernel{"lamport_reduce_scatter", TypeClass::floats};

/// The longest message of a two-shot over Lamport buffers. Between 2 ranks longer messages stream, for which half is enough:
/// by default 15 MiB of floats fit the rings without reuse, and 16 MiB, which do not, took no less time when they did.
std::size_t lamport_bytes(const GroupShape& shape) {
  const std::size_t unit = std::size_t{512} * static_cast<std::size_t>(shape.ranks);
  const std::size_t bytes = shape.ranks == 2 ? shape.staging_bytes / 2 : shape.staging_bytes;
  return bytes / unit * unit;
}

/// For groups of one rank there is nobody to stage for.
std::size_t with_control(const GroupShape& shape, std::size_t slots) {
  return kScratchAlignment + (shape.ranks == 1 ? 0 : slots);
}

constexpr ScratchRegion kLLScratch{[](const GroupShape& shape) {
  return with_control(shape, 2 * static_cast<std::size_t>(shape.ranks) * 2 * kLLSlotBytes);
}};
/// Destination for results that a rank does not need.
constexpr ScratchRegion kDiscardScratch{
    [](const GroupShape& shape) { return shape.ranks == 1 ? 0 : kDiscardBytes; }};

/// How a kernel uses its scratch memory.
struct Protocol {
  const ScratchRegion& scratch;
  std::size_t width;  ///< bytes of a packet, which a thread moves at a time
  bool two_shot;
  Slots slots;
  std::size_t launch_bytes;  ///< maximum number of bytes per launch
};

/// The region of Lamport buffers cut for two-shot.
Slots lamport_two_shot_slots(const GroupShape& shape) {
  const std::size_t most = lamport_bytes(shape);
  return {.begin = kScratchAlignment,
          .parity = 2 * most,
          .phase = most,
          .rank = most / static_cast<std::size_t>(shape.ranks)};
}

Protocol protocol_of(const ReductionKernel& kernel, const GroupShape& shape) {
  if (kernel.types == TypeClass::floats) {  // over Lamport buffers
    const bool two_shot = &kernel == &kLamportTwoShotKernel;
    const Slots slots = two_shot ? lamport_two_shot_slots(shape) : lamport_one_shot_slots(shape);
    return {.scratch = kLamportScratch,
            .width = 16,
            .two_shot = two_shot,
            .slots = slots,
            .launch_bytes = two_shot ? slots.phase : slots.rank};
  }
  return {.scratch = kLLScratch,
          .width = kLLWidth,
          .two_shot = false,
          .slots = {.begin = kScratchAlignment,
                    .parity = static_cast<std::size_t>(shape.ranks) * 2 * kLLSlotBytes,
                    .rank = 2 * kLLSlotBytes},
          .launch_bytes = kLLSlotBytes};
}

/// Threads per block for `packets` packets in a launch, spread over at most `blocks` blocks. `pairs`: the kernel loads two of a
/// thread's packets before it sends them.
std::size_t choose_block(std::size_t packets, std::size_t blocks, bool pairs) {
  if (packets <= kOneBlock) return ceil_div(std::max<std::size_t>(packets, 1), kWarp) * kWarp;
  const std::size_t share = ceil_div(ceil_div(packets, blocks), kWarp) * kWarp;
  if (share <= kMiddleBlock) return std::max(share, kSmallBlock);
  return share <= 2 * kMiddleBlock && pairs ? kMiddleBlock : 2 * kMiddleBlock;
}

/// The launch for `packets` packets, of which a thread moves one at a time. Sets PushParams::early.
LaunchShape shape_launch(const Launcher& launcher, const CollectiveCall& call, const LaunchLimits& limits,
                         std::size_t packets, bool pairs, PushParams& params) {
  const auto blocks = static_cast<std::size_t>(
      std::min(limits.blocks.value_or(launcher.shape().blocks), launcher.shape().blocks));
  const auto most_threads =
      static_cast<std::size_t>(max_threads(kernel_ranks(launcher.size(), is_sum(call.op))));
  const std::size_t block =
      std::min<std::size_t>(limits.threads.value_or(choose_block(packets, blocks, pairs)), most_threads);
  // A quarter of each multiprocessor, which is half of what the largest block takes (sync/call.cuh).
  params.early = block <= most_threads / 2;
  return {.grid = static_cast<unsigned>(std::clamp(ceil_div(packets, block), std::size_t{1}, blocks)),
          .block = static_cast<unsigned>(block),
          .lets_next_start = params.early};
}

template <class Params>
Params describe(const Launcher& launcher, const CollectiveCall& call, const Protocol& protocol) {
  Params params;
  params.rank = launcher.rank();
  params.size = launcher.size();
  params.phase = DeviceFault::phase_of(call.collective);
  params.counter = launcher.head<EpochCounter>(protocol.scratch, launcher.rank());
  params.inbox = launcher.scratch(protocol.scratch, launcher.rank()) + protocol.slots.begin;
  for (int step = 1; step < launcher.size(); ++step) {
    params.outbox[step] = launcher.scratch(protocol.scratch, launcher.right(step)) + protocol.slots.begin +
                          static_cast<std::size_t>(launcher.rank()) * protocol.slots.rank;
  }
  params.parity_stride = protocol.slots.parity;
  params.phase_stride = protocol.slots.phase;
  params.rank_stride = protocol.slots.rank;
  params.poison = launcher.poisons(call.type);
  params.guard = launcher.call_guard();
  params.scale = call.scale();
  return params;
}

void reduce_scatter(Launcher& launcher, const CollectiveCall& call, const LaunchLimits& limits,
                    const ReductionKernel& kernel) {
  const Protocol protocol = protocol_of(kernel, launcher.shape());
  const std::size_t block = call.block_bytes();
  auto params = describe<PushParams>(launcher, call, protocol);
  params.piece = block;
  params.aligned = is_aligned(call.in_at()) && is_aligned(call.out_at()) && block % 16 == 0;
  const LaunchShape shape =
      shape_launch(launcher, call, limits, ceil_div(std::min(block, protocol.launch_bytes), protocol.width),
                   launcher.size() > 2, params);
  for (std::size_t done = 0; done < block; done += protocol.launch_bytes) {
    params.in = call.in_at(done);
    params.out = call.out_at(done);
    params.block = std::min(block - done, protocol.launch_bytes);
    params.bytes = static_cast<std::size_t>(launcher.size() - 1) * block + params.block;
    params.packets = static_cast<std::uint32_t>(ceil_div(params.block, protocol.width));
    launcher.launch(kernel, call, shape, params);
  }
}

/// Queues a call of the push algorithm that has this kernel for all-reduces and reduces. In a reduce the ranks other than the
/// root discard the result.
template <const ReductionKernel& kKernel, bool kByPeer = false>
void run(Launcher& launcher, const CollectiveCall& call, const LaunchLimits& limits,
         const SymmetricOutput* /*output*/) {
  if (call.collective == Collective::reduce_scatter) {
    return reduce_scatter(
        launcher, call, limits,
        kKernel.types == TypeClass::floats ? kLamportReduceScatterKernel : kLLReduceScatterKernel);
  }
  const Protocol protocol = protocol_of(kKernel, launcher.shape());
  auto params = describe<PushParams>(launcher, call, protocol);
  const bool wanted = call.gets_out();
  params.aligned = is_aligned(call.in_at()) && (!wanted || is_aligned(call.out_at()));
  params.by_peer = kByPeer;
  const auto ranks = static_cast<std::size_t>(launcher.size());
  const std::size_t bytes = call.block_bytes();
  const std::size_t per_launch = call.collective == Collective::reduce
                                     ? std::min(protocol.launch_bytes, kDiscardBytes)
                                     : protocol.launch_bytes;
  // All launches have the shape of the first, which is the longest.
  const std::size_t longest = std::min(bytes, per_launch);
  const LaunchShape shape =
      shape_launch(launcher, call, limits,
                   ceil_div(protocol.two_shot ? ceil_div(longest, ranks) : longest, protocol.width),
                   protocol.two_shot, params);
  for (std::size_t done = 0; done < bytes; done += per_launch) {
    params.in = call.in_at(done);
    params.out = wanted ? call.out_at(done) : launcher.scratch(kDiscardScratch, launcher.rank());
    params.bytes = std::min(bytes - done, per_launch);
    params.piece = ceil_div(ceil_div(params.bytes, ranks), 16) * 16;
    params.packets =
        static_cast<std::uint32_t>(ceil_div(protocol.two_shot ? params.piece : params.bytes, protocol.width));
    launcher.launch(kKernel, call, shape, params);
  }
}

/// The multiplication of a premul_sum of one rank.
void scale_alone(Launcher& launcher, const CollectiveCall& call) {
  // The kernel uses no slot with one rank; only the range of its counters limits a launch.
  constexpr std::size_t kLaunchBytes = std::size_t{1} << 30;
  constexpr unsigned kBlock = 256;
  const Protocol protocol = protocol_of(kLLOneShotKernel, launcher.shape());
  auto params = describe<PushParams>(launcher, call, protocol);
  params.aligned = is_aligned(call.in_at()) && is_aligned(call.out_at());
  const std::size_t bytes = call.block_bytes();
  const std::size_t packets = ceil_div(std::min(bytes, kLaunchBytes), protocol.width);
  const LaunchShape shape{
      .grid = static_cast<unsigned>(std::clamp<std::size_t>(packets / kBlock, 1, launcher.shape().blocks)),
      .block = kBlock};
  for (std::size_t done = 0; done < bytes; done += kLaunchBytes) {
    params.in = call.in_at(done);
    params.out = call.out_at(done);
    params.bytes = std::min(bytes - done, kLaunchBytes);
    params.packets = static_cast<std::uint32_t>(ceil_div(params.bytes, protocol.width));
    launcher.launch(kLLOneShotKernel, call, shape, params);
  }
}

/// Copies `in` to `out`.
void run_alone(Launcher& launcher, const CollectiveCall& call, const LaunchLimits& /*limits*/,
               const SymmetricOutput* /*output*/) {
  if (call.traits().reduces && (call.op == ReduceOp::premul_sum || call.op == kWeightedSum))
    return scale_alone(launcher, call);
  exchange(launcher, transfers_of(call), DeviceFault::phase_of(call.collective));
}

constexpr std::array kLLKernels{&kLLOneShotKernel, &kLLListKernel, &kLLReduceScatterKernel};
constexpr std::array kAloneKernels{&kLLOneShotKernel};
constexpr std::array kLamportOneShotKernels{&kLamportOneShotKernel, &kLamportReduceScatterKernel};
constexpr std::array kLamportTwoShotKernels{&kLamportTwoShotKernel};
constexpr std::array kLLRegions{&kLLScratch, &kDiscardScratch};
constexpr std::array kLamportRegions{&kLamportScratch, &kDiscardScratch};
constexpr CollectiveSet kReductions{Collective::all_reduce, Collective::reduce, Collective::reduce_scatter};

}  // namespace

constexpr ScratchRegion kLamportScratch{
    [](const GroupShape& shape) { return with_control(shape, 4 * lamport_bytes(shape)); }};

Slots lamport_one_shot_slots(const GroupShape& shape) {
  const std::size_t most = lamport_bytes(shape);
  return {.begin = kScratchAlignment,
          .parity = 2 * most,
          .rank = 2 * most / static_cast<std::size_t>(shape.ranks)};
}

const DeviceAlgorithm kLLOneShot{{.name = "ll_one_shot",
                                  .kind = Algorithm::one_shot,
                                  .collectives = kReductions,
                                  .takes_blocks = true,
                                  .takes_threads = true},
                                 run<kLLOneShotKernel>,
                                 kLLKernels,
                                 {},
                                 kLLRegions};
const DeviceAlgorithm kLamportOneShot{{.name = "lamport_one_shot",
                                       .kind = Algorithm::one_shot,
                                       .collectives = kReductions,
                                       .types = TypeClass::floats,
                                       .takes_blocks = true,
                                       .takes_threads = true},
                                      run<kLamportOneShotKernel>,
                                      kLamportOneShotKernels,
                                      {},
                                      kLamportRegions};
/// Sends everything to one peer before the next, so that no two ranks send to the same one at once. In long
/// messages the ranks would drift apart meanwhile.
const DeviceAlgorithm kLamportTwoShotByPeer{{.name = "lamport_two_shot_by_peer",
                                             .kind = Algorithm::two_shot,
                                             .collectives = {Collective::all_reduce, Collective::reduce},
                                             .types = TypeClass::floats,
                                             .takes_blocks = true,
                                             .takes_threads = true},
                                            run<kLamportTwoShotKernel, true>,
                                            kLamportTwoShotKernels,
                                            {},
                                            kLamportRegions};
const DeviceAlgorithm kLamportTwoShot{{.name = "lamport_two_shot",
                                       .kind = Algorithm::two_shot,
                                       .collectives = {Collective::all_reduce, Collective::reduce},
                                       .types = TypeClass::floats,
                                       .takes_blocks = true,
                                       .takes_threads = true},
                                      run<kLamportTwoShotKernel>,
                                      kLamportTwoShotKernels,
                                      {},
                                      kLamportRegions};

/// For groups of one rank.
const DeviceAlgorithm kAlone{{.without_choice = CollectiveSet::all(), .least_ranks = 1, .most_ranks = 1},
                             run_alone,
                             kAloneKernels,
                             {},
                             kLLRegions};

void run_fused(Launcher& launcher, std::span<const CollectiveCall> calls) {
  const CollectiveCall& first = calls.front();
  const Protocol protocol = protocol_of(kLLListKernel, launcher.shape());
  auto params = describe<PushListParams>(launcher, first, protocol);
  std::fill(std::begin(params.first), std::end(params.first), UINT32_MAX);
  std::size_t i = 0;
  for (const CollectiveCall& call : calls) {
    if (call.count == 0) continue;
    params.first[i] = params.packets;
    params.messages[i++] = {.in = call.in_at(), .out = call.out_at(), .bytes = call.block_bytes()};
    params.packets += static_cast<std::uint32_t>(fused_packets(call.block_bytes()));
  }
  const LaunchShape shape = shape_launch(launcher, first, {}, params.packets, false, params);
  launcher.launch(kLLListKernel, first, shape, params);
}

}  // namespace onehop::cuda
