#include "collective/plan.h"

#include <algorithm>
#include <cstdint>

#include "kernel/cuda/all_reduce_params.h"
#include "kernel/host/all_reduce.h"

namespace onehop {
namespace {

// Staged chunks should stay in a core's second-level cache, with the input and output they belong to.
constexpr std::size_t kOneShotChunk = 128 << 10;
constexpr std::size_t kTwoShotChunk = 256 << 10;

// GPU kernels: threads per block, and blocks. 8 blocks of 512 threads nearly fill the links; more of them
// share the additions. All must be resident at once, beside whatever else the GPU runs.
constexpr std::size_t kWarp = 32;
constexpr std::size_t kSmallBlock = 256;
constexpr std::size_t kLargeBlock = 512;
constexpr std::size_t kMostBlocks = 64;
static_assert(kMostBlocks <= cuda::kMaxBlocks);

constexpr std::size_t ceil_div(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}

// Up to here the second step of two-shot costs more than the bytes it saves. Measured on two cores with
// `onehop bench all-reduce --ranks N --algorithm ...`; with 2 ranks both move the same bytes, and two-shot
// wins only when the sums no longer fit the caches.
std::size_t one_shot_limit(int ranks) {
  if (ranks == 2) return std::size_t{1} << 20;
  return ranks <= 4 ? std::size_t{128} << 10 : std::size_t{32} << 10;
}

// On GPUs. One-shot sends (n - 1) bytes per byte in one trip, two-shot 2 (n - 1) / n in two. Measured on
// H200s with graph replays, bf16: with 4 ranks 5.9 against 7.4 us at 256 KB, 8.9 against 8.2 at 512 KB; with
// 2 ranks 4.2 against 5.0 at 512 KB, 7.1 against 6.3 at 1 MB (bench/results/gpu-first-run.md). 8 ranks: from
// the bytes.
std::size_t device_one_shot_limit(int ranks) {
  if (ranks == 2) return std::size_t{512} << 10;
  return ranks <= 4 ? std::size_t{256} << 10 : std::size_t{128} << 10;
}

// With more than 2 ranks, flags in the data are quicker than mailboxes as long as twice the bytes cost
// little: with 4 ranks 2.4 against 3.0 us at 1 KB, 3.3 against 3.9 at 32 KB (same place).
constexpr std::size_t kPacketBytes = 32 << 10;

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

}  // namespace

Plan plan_all_reduce(const PlanRequest& request) {
  const host::StagingLayout layout(request.staging_bytes);
  const Algorithm algorithm = choose(request, one_shot_limit(request.ranks));
  switch (algorithm) {
    case Algorithm::none:
      return {};
    case Algorithm::one_shot:
      return {.algorithm = algorithm, .chunk = std::min(kOneShotChunk, layout.input_bytes)};
    case Algorithm::two_shot:
      return {.algorithm = algorithm, .chunk = std::min(kTwoShotChunk, layout.max_chunk(request.ranks))};
  }
  return {};
}

DevicePlan plan_device_all_reduce(const PlanRequest& request) {
  DevicePlan plan;
  plan.algorithm = choose(request, device_one_shot_limit(request.ranks));
  if (plan.algorithm == Algorithm::none) return plan;

  const bool one_shot = plan.algorithm == Algorithm::one_shot;
  const auto ranks = static_cast<std::size_t>(request.ranks);
  const auto layout = cuda::SegmentLayout::of(request.ranks, request.staging_bytes);
  // Mailboxes send nothing but the data, but hold one pass only.
  const std::size_t mail = one_shot ? layout.mail_slot_bytes() : layout.mail_bytes;
  const bool few = one_shot && request.ranks > 2 && request.bytes <= kPacketBytes;
  if (carries(DeviceProtocol::mail_one_shot, request.type) && request.bytes <= mail && !few) {
    plan.protocol = one_shot ? DeviceProtocol::mail_one_shot : DeviceProtocol::mail_two_shot;
    plan.pass_bytes = mail;
  } else {
    plan.protocol = one_shot ? DeviceProtocol::packets : DeviceProtocol::pieces;
    plan.pass_bytes = one_shot ? cuda::kPacketSlotBytes : layout.piece_bytes * ranks;
  }
  // What one thread moves at a time, and how many of those there are in a pass (two-shot: in a piece of it).
  const std::size_t width = plan.protocol == DeviceProtocol::packets ? 8 : 16;
  const std::size_t part = std::min(request.bytes, plan.pass_bytes);
  const std::size_t packets = ceil_div(one_shot ? part : ceil_div(part, ranks), width);
  // Few threads per block start sooner and spread over more multiprocessors; many move more.
  const std::size_t block = packets <= kSmallBlock * kMostBlocks ? kSmallBlock : kLargeBlock;
  plan.block = static_cast<unsigned>(std::clamp(ceil_div(packets, kWarp) * kWarp, kWarp, block));
  plan.grid = static_cast<unsigned>(std::clamp(ceil_div(packets, plan.block), std::size_t{1}, kMostBlocks));
  return plan;
}

bool legacy_alignment_ok(const void* in, const void* out) {
  return reinterpret_cast<std::uintptr_t>(in) % 4 == 0 && reinterpret_cast<std::uintptr_t>(out) % 4 == 0;
}

}  // namespace onehop
