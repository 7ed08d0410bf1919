// SPDX-License-Identifier: Apache-2.0
#include "collective/plan.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <variant>

#include "kernel/cuda/call_params.h"
#include "kernel/host/all_reduce.h"

namespace onehop {
namespace {

// Staged chunks should fit a core's second-level cache, together with their input and output.
constexpr std::size_t kOneShotChunk = 128 << 10;
constexpr std::size_t kTwoShotChunk = 256 << 10;

constexpr std::size_t ceil_div(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}

// Up to this limit the second step of two-shot costs more than the bytes it saves. Measured on two cores with
// `onehop bench all-reduce --ranks N --algorithm ...`. With 2 ranks both algorithms move the same bytes, and
// two-shot wins only when the sums no longer fit the caches.
std::size_t one_shot_limit(int ranks) {
  if (ranks == 2) return std::size_t{1} << 20;
  return ranks <= 4 ? std::size_t{128} << 10 : std::size_t{32} << 10;
}

// Limit for GPUs. One-shot sends (n - 1) bytes per byte in one trip, two-shot 2 (n - 1) / n in two trips.
// Measured on H200s with graph replays, bf16 (bench/results/gpu-kernels.md). With 4 ranks, one-shot takes 4.3
// us and two-shot 4.5 us at 256 KB, 6.6 and 5.4 us at 512 KB. With 2 ranks, where both move the same bytes,
// it is 7.8 and 8.9 us at 2 MB, 14.3 and 13.9 us at 4 MB. The limit for 8 ranks is extrapolated from the
// number of bytes.
std::size_t device_one_shot_limit(int ranks) {
  if (ranks == 2) return std::size_t{2} << 20;
  return ranks <= 4 ? std::size_t{256} << 10 : std::size_t{128} << 10;
}

// Flags in the data words (packets) are faster than mailboxes, which must be cleared, as long as doubling the
// bytes costs little. With 4 ranks, packets take 1.94 us and mailboxes 2.01 us at 4 KB, 2.15 and 2.16 us at
// 16 KB, 3.1 and 2.6 us at 64 KB (same source).
std::size_t packets_limit(int ranks) {
  return ranks == 2 ? std::size_t{32} << 10 : std::size_t{16} << 10;
}

// Packets of a list of messages in one launch: the limit of a one-shot message, and at most what a slot
// holds. Lists also carry floats that would use mailboxes alone. Judging by the bytes, up to this limit the
// extra time of packets is no more than the cost of a launch.
constexpr std::size_t kPacket = 8;
std::size_t list_limit(int ranks) {
  return std::min(device_one_shot_limit(ranks), cuda::kPacketSlotBytes) / kPacket;
}

// Mailboxes are faster up to this size. Their threads wait for no release, but they must reset every word and
// need one launch per mailbox region (same source).
constexpr std::size_t kMailTwoShotLimit = std::size_t{32} << 20;

// Chunks. A block handles at least this many bytes of each piece at a time, since a release costs
// microseconds. If the message is long enough there are this many chunks, so that the links do not wait for
// the additions.
constexpr std::size_t kMinChunk = 4 << 10;
constexpr std::size_t kChunksPerBlock = 4;
constexpr std::size_t kLeastChunk = 512;  // a packet for every lane of a warp

// Copy engines. Starting a copy costs 4 us, and filling and draining the pipeline costs a round. With more
// than 2 ranks, rounds drift apart and copies collide at their receivers. More than 4 rounds are then slower
// than chunks (same source).
constexpr std::size_t kMinRound = std::size_t{32} << 20;
constexpr std::size_t kMinRounds = 2;
constexpr std::size_t kMaxRounds = 4;
// Unit of rounds, and of the pieces of direct copies; suits any type and any kernel.
constexpr std::size_t kCopyUnit = 512;

// Reduce-scatter: limits as for all-reduce, applied to what a rank sends to all peers; mailboxes up to this
// block size.
constexpr std::size_t kScatterPackets = 48 << 10;
constexpr std::size_t kScatterMail = std::size_t{8} << 20;

// Threads per block: small blocks start sooner and spread over more multiprocessors.
constexpr std::size_t kWarp = 32;
constexpr std::size_t kSmallBlock = 64;
constexpr std::size_t kOneBlock = 128;  // up to this many packets use one block
// Up to this many packets per multiprocessor each thread handles one. Up to twice as many, two-shot is faster
// with half as many threads that handle two packets each. Beyond that the maximum number of threads is
// faster.
constexpr std::size_t kMiddleBlock = 256;

Algorithm choose(const PlanRequest& request, std::size_t one_shot_bytes) {
  if (request.forced) return *request.forced;
  if (request.policy == AlgorithmPolicy::tuned) {
    return request.bytes <= one_shot_bytes ? Algorithm::one_shot : Algorithm::two_shot;
  }
  const bool carried = (request.type == DType::f32 || request.type == DType::bf16) &&
                       request.op == ReduceOp::sum && request.bytes % 4 == 0 &&
                       request.bytes <= request.staging_bytes;
  if (carried && request.bytes <= kLegacyOneShotBytes) return Algorithm::one_shot;
  if (carried && request.bytes <= kLegacyTwoShotBytes) return Algorithm::two_shot;
  return Algorithm::none;
}

/// The table's choice for this call. A forced algorithm and the legacy policy ignore the table.
template <class W>
const W* find_row(const PlanRequest& request, Backend backend) {
  if (request.tuning == nullptr || request.forced || request.policy != AlgorithmPolicy::tuned) return nullptr;
  const Way* const way =
      request.tuning->find(Collective::all_reduce, backend, request.ranks, request.type, request.bytes);
  return way == nullptr ? nullptr : std::get_if<W>(way);
}

std::size_t piece_of(const PlanRequest& request) {
  return ceil_div(std::max<std::size_t>(request.bytes, 1), static_cast<std::size_t>(request.ranks) * 16) * 16;
}

/// Number of rounds that copy engines need for this message; 0: they have no memory.
std::size_t copy_rounds(const PlanRequest& request) {
  const std::size_t most =
      cuda::SegmentLayout::of(request.ranks, request.staging_bytes, request.copy_bytes).round_bytes;
  return most == 0 ? 0 : std::max(kMinRounds, ceil_div(piece_of(request), most));
}
bool copies_pay(const PlanRequest& request) {
  const std::size_t rounds = copy_rounds(request);
  return rounds != 0 && piece_of(request) / rounds >= kMinRound &&
         (request.ranks == 2 || rounds <= kMaxRounds);
}

constexpr bool is_one_shot(DeviceProtocol protocol) {
  return protocol == DeviceProtocol::packets || protocol == DeviceProtocol::mail_one_shot;
}

DeviceProtocol choose_protocol(const PlanRequest& request, Algorithm algorithm) {
  const bool mail = carries(DeviceProtocol::mail_one_shot, request.type);
  if (algorithm == Algorithm::one_shot) {
    return mail && request.bytes > packets_limit(request.ranks) ? DeviceProtocol::mail_one_shot
                                                                : DeviceProtocol::packets;
  }
  if (mail && request.bytes <= kMailTwoShotLimit) return DeviceProtocol::mail_two_shot;
  return copies_pay(request) ? DeviceProtocol::copies : DeviceProtocol::chunks;
}

/// The maximum number of bytes that one launch of a protocol moves.
std::size_t launch_limit(DeviceProtocol protocol, const cuda::SegmentLayout& layout) {
  switch (protocol) {
    case DeviceProtocol::packets:
      return cuda::kPacketSlotBytes;
    case DeviceProtocol::mail_one_shot:
      return layout.mail_one_shot().rank;
    case DeviceProtocol::mail_two_shot:
      return layout.mail_bytes;
    default:
      break;  // no limit
  }
  return 0;
}

/// Sets the launch of a pipeline of chunks with at most `blocks` blocks.
void shape_chunks(DevicePlan& plan, const PlanRequest& request, std::size_t blocks) {
  plan.launch_bytes = ceil_div(std::max<std::size_t>(request.bytes, 1), 16) * 16;
  blocks = std::min<std::size_t>(blocks, cuda::kMaxChunkedBlocks);
  const std::size_t piece = piece_of(request);
  const std::size_t part = ceil_div(piece, blocks);
  const std::size_t chunk =
      std::max({ceil_div(part, kChunksPerBlock), std::min(part, kMinChunk), kLeastChunk});
  plan.chunk = std::min(std::bit_ceil(chunk),
                        cuda::SegmentLayout::of(request.ranks, request.staging_bytes).chunk_bytes);
  plan.shape.block = static_cast<unsigned>(
      cuda::crew(cuda::kernel_ranks(request.ranks, request.op == ReduceOp::sum)).threads());
  plan.shape.grid = static_cast<unsigned>(std::clamp(ceil_div(piece, plan.chunk), std::size_t{1}, blocks));
}

/// Sets the launches of the kernels between the copies of a piece in `rounds` rounds, with at most `blocks`
/// blocks.
void shape_copies(DevicePlan& plan, const PlanRequest& request, std::size_t piece, std::size_t rounds,
                  std::size_t blocks) {
  plan.launch_bytes = piece * static_cast<std::size_t>(request.ranks);
  plan.chunk = ceil_div(ceil_div(piece, rounds), kCopyUnit) * kCopyUnit;
  plan.shape.block = static_cast<unsigned>(
      cuda::max_threads(cuda::kernel_ranks(request.ranks, request.op == ReduceOp::sum)));
  plan.shape.grid = static_cast<unsigned>(
      std::clamp(ceil_div(plan.chunk, std::size_t{16} * plan.shape.block), std::size_t{1}, blocks));
}

/// Threads per block for `packets` packets in a launch, spread over at most `blocks` blocks.
std::size_t choose_block(std::size_t packets, std::size_t blocks, bool one_shot) {
  if (packets <= kOneBlock) return ceil_div(std::max<std::size_t>(packets, 1), kWarp) * kWarp;
  const std::size_t share = ceil_div(ceil_div(packets, blocks), kWarp) * kWarp;
  if (share <= kMiddleBlock) return std::max(share, kSmallBlock);
  return share <= 2 * kMiddleBlock && !one_shot ? kMiddleBlock : 2 * kMiddleBlock;
}

/// Sets a launch of `packets` units, of which a thread moves one at a time. There are at most `blocks` blocks
/// of `block` threads.
template <class AnyPlan>
void shape_packets(AnyPlan& plan, const PlanRequest& request, std::size_t packets, std::size_t block,
                   std::size_t blocks) {
  const auto most_threads = static_cast<std::size_t>(
      cuda::max_threads(cuda::kernel_ranks(request.ranks, request.op == ReduceOp::sum)));
  block = std::min(block, most_threads);
  plan.shape.block = static_cast<unsigned>(block);
  plan.shape.grid = static_cast<unsigned>(std::clamp(ceil_div(packets, block), std::size_t{1}, blocks));
  // A quarter of each multiprocessor, which is half of what the largest block takes (call.cuh).
  plan.shape.early = block <= most_threads / 2;
}

}  // namespace

Plan plan_all_reduce(const PlanRequest& request) {
  const host::StagingLayout layout(request.staging_bytes);
  const auto* const row = find_row<HostWay>(request, Backend::host);
  const Algorithm algorithm =
      row != nullptr ? row->algorithm : choose(request, one_shot_limit(request.ranks));
  switch (algorithm) {
    case Algorithm::none:
      return {};
    case Algorithm::one_shot:
      return {.algorithm = algorithm,
              .chunk = std::min(row != nullptr ? row->chunk : kOneShotChunk, layout.input_bytes)};
    case Algorithm::two_shot:
      return {
          .algorithm = algorithm,
          .chunk = std::min(row != nullptr ? row->chunk : kTwoShotChunk, layout.max_chunk(request.ranks))};
  }
  return {};
}

DevicePlan plan_device_all_reduce(const PlanRequest& request) {
  DevicePlan plan;
  const auto* row = find_row<DeviceWay>(request, Backend::cuda);
  if (row != nullptr && row->protocol == DeviceProtocol::copies && copy_rounds(request) == 0) row = nullptr;
  if (row != nullptr) {
    plan.protocol = row->protocol;
    plan.algorithm = is_one_shot(row->protocol) ? Algorithm::one_shot : Algorithm::two_shot;
  } else {
    plan.algorithm = choose(request, device_one_shot_limit(request.ranks));
    if (plan.algorithm == Algorithm::none) return plan;
    plan.protocol = choose_protocol(request, plan.algorithm);
  }
  auto blocks = static_cast<std::size_t>(request.resident_blocks);
  if (row != nullptr) blocks = std::min<std::size_t>(blocks, row->blocks);
  if (plan.protocol == DeviceProtocol::chunks) {
    shape_chunks(plan, request, blocks);
    return plan;
  }
  if (plan.protocol == DeviceProtocol::copies) {
    shape_copies(plan, request, piece_of(request), copy_rounds(request), blocks);
    return plan;
  }
  plan.launch_bytes =
      launch_limit(plan.protocol, cuda::SegmentLayout::of(request.ranks, request.staging_bytes));

  // The unit that one thread moves at a time, and the number of units in a launch (two-shot: in a piece of
  // it).
  const bool one_shot = plan.algorithm == Algorithm::one_shot;
  const std::size_t width = plan.protocol == DeviceProtocol::packets ? kPacket : 16;
  const std::size_t part = std::min(request.bytes, plan.launch_bytes);
  const std::size_t packets =
      ceil_div(one_shot ? part : ceil_div(part, static_cast<std::size_t>(request.ranks)), width);
  shape_packets(plan, request, packets,
                row != nullptr ? row->threads : choose_block(packets, blocks, one_shot), blocks);
  return plan;
}

std::optional<DevicePlan> plan_direct_all_reduce(const PlanRequest& request) {
  if (request.policy != AlgorithmPolicy::tuned || request.forced == Algorithm::one_shot) return std::nullopt;
  // Handles half of each piece at a time; the other half's bytes move meanwhile.
  constexpr std::size_t kHalves = 2;
  const std::size_t piece = request.bytes / static_cast<std::size_t>(request.ranks) / kCopyUnit * kCopyUnit;
  if (piece < kHalves * kMinRound) return std::nullopt;
  DevicePlan plan{.algorithm = Algorithm::two_shot, .protocol = DeviceProtocol::direct};
  shape_copies(plan, request, piece, kHalves, static_cast<std::size_t>(request.resident_blocks));
  return plan;
}

ListPlan plan_device_list(PlanRequest request, std::span<const std::size_t> bytes) {
  const std::size_t limit = list_limit(request.ranks);
  std::size_t calls = 0;
  std::size_t messages = 0;
  std::size_t packets = 0;
  for (const std::size_t each : bytes) {
    request.bytes = each;
    if (plan_device_all_reduce(request).algorithm != Algorithm::one_shot) break;
    const std::size_t more = ceil_div(each, kPacket);
    if (more > limit - packets || (more != 0 && messages == cuda::kMaxListed)) break;
    messages += more != 0 ? 1 : 0;
    packets += more;
    ++calls;
  }
  ListPlan plan;
  if (messages == 0 || calls < 2) return plan;
  plan.calls = calls;
  const auto blocks = static_cast<std::size_t>(request.resident_blocks);
  shape_packets(plan, request, packets, choose_block(packets, blocks, true), blocks);
  return plan;
}

DevicePlan plan_device_reduce_scatter(const PlanRequest& request) {
  const bool mail = carries(DeviceProtocol::mail_one_shot, request.type);
  const std::size_t wire = request.bytes * static_cast<std::size_t>(request.ranks - 1);
  DevicePlan plan;
  if (request.bytes <= cuda::kPacketSlotBytes && (!mail || wire <= kScatterPackets)) {
    plan.protocol = DeviceProtocol::packets;
  } else if (mail && request.bytes <= kScatterMail) {
    plan.protocol = DeviceProtocol::mail_one_shot;
  } else {
    return plan;  // streams
  }
  plan.launch_bytes =
      launch_limit(plan.protocol, cuda::SegmentLayout::of(request.ranks, request.staging_bytes));
  const std::size_t width = plan.protocol == DeviceProtocol::packets ? kPacket : 16;
  const std::size_t packets = ceil_div(std::min(request.bytes, plan.launch_bytes), width);
  const auto blocks = static_cast<std::size_t>(request.resident_blocks);
  shape_packets(plan, request, packets, choose_block(packets, blocks, false), blocks);
  return plan;
}

DevicePlan plan_device_reduce(const PlanRequest& request) {
  // An all-reduce over packets or mailboxes waits for no release. With 4 ranks 1 MB takes 7.1 us, with
  // streams 15; with 2 ranks 4 MB take 14.4 and 15.6 us (bench/results/gpu-kernels.md).
  const bool floats = carries(DeviceProtocol::mail_one_shot, request.type);
  PlanRequest of_all = request;
  if (!floats && !request.forced) of_all.forced = Algorithm::one_shot;
  const std::size_t limit = floats ? cuda::kDiscardBytes : cuda::kPacketSlotBytes;
  if (request.bytes <= limit && (floats || of_all.forced == Algorithm::one_shot))
    return plan_device_all_reduce(of_all);
  const Algorithm algorithm =
      request.forced.value_or(request.ranks == 2 ? Algorithm::one_shot : Algorithm::two_shot);
  return {.algorithm = algorithm,
          .protocol =
              algorithm == Algorithm::two_shot ? DeviceProtocol::streams_two_shot : DeviceProtocol::streams};
}

DevicePlan plan_device_exchange(const CollectiveCall& call) {
  const bool to_many = call.collective == Collective::broadcast && call.ranks > 2;
  if (call.symmetric && !to_many && is_quicker_by_copies(call.ranks, call.block_bytes()))
    return {.protocol = DeviceProtocol::direct};
  // Up to this size, sending the whole message from the root to every rank is faster than relaying pieces.
  const auto ranks = static_cast<std::size_t>(call.ranks);
  const bool in_pieces = to_many && call.block_bytes() > cuda::pair_bundle_bytes(ranks) / (ranks - 1);
  return {.protocol = in_pieces ? DeviceProtocol::streams_two_shot : DeviceProtocol::streams};
}

bool is_quicker_by_copies(int ranks, std::size_t block_bytes) {
  // Meetings (cross-rank synchronization) and the start of a copy take 17 us more than kernels do; every
  // further copy takes 4 us. For each megabyte that a rank sends, copies take 0.35 us less
  // (bench/results/gpu-kernels.md).
  const auto peers = static_cast<std::size_t>(ranks) - 1;
  return peers * block_bytes >= (std::size_t{64} << 20) + (peers - 1) * (std::size_t{12} << 20);
}

bool legacy_alignment_ok(const void* in, const void* out) {
  return reinterpret_cast<std::uintptr_t>(in) % 4 == 0 && reinterpret_cast<std::uintptr_t>(out) % 4 == 0;
}

Algorithm plan_alone(const CollectiveCall& call, AlgorithmPolicy policy, std::size_t staging_bytes) {
  if (call.algorithm) return *call.algorithm;
  if (call.collective != Collective::all_reduce || policy != AlgorithmPolicy::legacy)
    return Algorithm::one_shot;
  return plan_all_reduce({.ranks = 1,
                          .bytes = call.block_bytes(),
                          .type = call.type,
                          .op = call.op,
                          .policy = policy,
                          .forced = {},
                          .staging_bytes = staging_bytes})
      .algorithm;
}

DevicePlan plan_scaling(const CollectiveCall& call, int resident_blocks) {
  // With one rank the kernel uses no slot; only the range of its counters limits a launch.
  constexpr std::size_t kLaunchBytes = std::size_t{1} << 30;
  constexpr std::size_t kBlock = 256;
  const std::size_t packets = ceil_div(std::min(call.block_bytes(), kLaunchBytes), kPacket);
  const auto blocks = static_cast<std::size_t>(resident_blocks);
  return {.protocol = DeviceProtocol::packets,
          .launch_bytes = kLaunchBytes,
          .shape = {.grid = static_cast<unsigned>(std::clamp<std::size_t>(packets / kBlock, 1, blocks)),
                    .block = kBlock}};
}

}  // namespace onehop
