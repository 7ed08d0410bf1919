// SPDX-License-Identifier: Apache-2.0
#include "collective/policy.h"

#include <cstdint>

namespace onehop {

Algorithm legacy_algorithm(DType type, ReduceOp op, std::size_t bytes, std::size_t staging_bytes) {
  const bool carried = (type == DType::f32 || type == DType::bf16) && op == ReduceOp::sum && bytes % 4 == 0 &&
                       bytes <= staging_bytes;
  if (carried && bytes <= kLegacyOneShotBytes) return Algorithm::one_shot;
  if (carried && bytes <= kLegacyTwoShotBytes) return Algorithm::two_shot;
  return Algorithm::none;
}

bool legacy_alignment_ok(const void* in, const void* out) {
  return reinterpret_cast<std::uintptr_t>(in) % 4 == 0 && reinterpret_cast<std::uintptr_t>(out) % 4 == 0;
}

std::optional<Algorithm> requested_kind(const CollectiveCall& call, AlgorithmPolicy policy,
                                        std::size_t staging_bytes) {
  if (!is_legacy(call, policy)) return call.options.algorithm;
  return legacy_algorithm(call.type, call.op, call.block_bytes(), staging_bytes);
}

}  // namespace onehop
