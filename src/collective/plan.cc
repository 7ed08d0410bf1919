#include "collective/plan.h"

#include <algorithm>
#include <cstdint>

#include "kernel/host/all_reduce.h"

namespace onehop {
namespace {

// Staged chunks should stay in a core's second-level cache, with the input and output they belong to.
constexpr std::size_t kOneShotChunk = 128 << 10;
constexpr std::size_t kTwoShotChunk = 256 << 10;

// Up to here the second step of two-shot costs more than the bytes it saves. Measured on two cores with
// `onehop bench all-reduce --ranks N --algorithm ...`; with 2 ranks both move the same bytes, and two-shot
// wins only when the sums no longer fit the caches.
std::size_t one_shot_limit(int ranks) {
  if (ranks == 2) return std::size_t{1} << 20;
  return ranks <= 4 ? std::size_t{128} << 10 : std::size_t{32} << 10;
}

Algorithm choose(const PlanRequest& request) {
  if (request.forced) return *request.forced;
  if (request.policy == AlgorithmPolicy::tuned) {
    return request.bytes <= one_shot_limit(request.ranks) ? Algorithm::one_shot : Algorithm::two_shot;
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
  const Algorithm algorithm = choose(request);
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

bool legacy_alignment_ok(const void* in, const void* out) {
  return reinterpret_cast<std::uintptr_t>(in) % 4 == 0 && reinterpret_cast<std::uintptr_t>(out) % 4 == 0;
}

}  // namespace onehop
