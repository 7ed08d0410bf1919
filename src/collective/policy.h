// SPDX-License-Identifier: Apache-2.0
// Which kind of algorithm a call asks for: by CallOptions::algorithm, or by the legacy policy.
#pragma once

#include <cstddef>
#include <optional>

#include "onehop/group.h"
#include "onehop/types.h"

#include "call/call.h"

namespace onehop {

/// Limits of the legacy policy (PyTorch's IntraNodeComm), in bytes, inclusive.
inline constexpr std::size_t kLegacyOneShotBytes = 256 << 10;
inline constexpr std::size_t kLegacyTwoShotBytes = 10 << 20;

/// The legacy policy's algorithm for an all_reduce. Algorithm::none: left to the caller.
[[nodiscard]] Algorithm legacy_algorithm(DType type, ReduceOp op, std::size_t bytes,
                                         std::size_t staging_bytes);

/// Whether the legacy policy accepts these pointers: both must be aligned to 4 bytes. This may differ between
/// ranks.
[[nodiscard]] bool legacy_alignment_ok(const void* in, const void* out);

/// Whether the legacy policy decides about this call.
[[nodiscard]] inline bool is_legacy(const CollectiveCall& call, AlgorithmPolicy policy) {
  return policy == AlgorithmPolicy::legacy && call.collective == Collective::all_reduce &&
         !call.options.algorithm;
}

/// The kind that the call must use. nullopt: the tables decide. Algorithm::none: the policy declines the call.
[[nodiscard]] std::optional<Algorithm> requested_kind(const CollectiveCall& call, AlgorithmPolicy policy,
                                                      std::size_t staging_bytes);

}  // namespace onehop
