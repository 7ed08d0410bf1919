// SPDX-License-Identifier: Apache-2.0
// Element-wise reductions over plain memory: the arithmetic of the host backend.
//
// Every kernel combines its sources in the order 0..n-1, one rounded operation at a time. The same sources in
// the same order therefore give the same bits with every instruction set. This holds in the default
// floating-point environment (round to nearest, subnormals kept); no kernel changes it.
//
//   f16 bf16 e4m3 e5m2   widened to f32, combined in f32, rounded once to nearest even at the end
//   f32 f64              combined as they are
//   integers             wrap around; avg is the wrapped sum divided by n, truncating
//   avg premul_sum       scaled in the accumulation type, before that is rounded
//   e4m3                 has no infinities: results beyond 448, infinite ones included, become 448
//   e5m2                 has them: results that round beyond 57344 become infinite, as in f16
//
// Any NaN result is the same quiet NaN: 0x7fff (f16, bf16), 0x7fc00000, 0x7ff8000000000000, 0x7f (e4m3,
// e5m2).
#pragma once

#include <cstddef>
#include <string_view>

#include "onehop/types.h"

#include "backend/host/kernel_table.h"

namespace onehop::host {

/// fn(dst, src, n, count, scale): dst[i] = src[0][i] op ... op src[n-1][i] for i < count; 1 <= n <=
/// kMaxHostRanks. `scale` is the result of scale_of() for the type and op. Pointers need the alignment of an
/// element. dst may equal one of the sources but must not overlap one otherwise.
[[nodiscard]] ReduceFn reduce_function(DType type, ReduceOp op);

/// fn(dst, dst2, src, n, count, scale): the same, but also writes each result to dst2, which may be a source
/// as well.
[[nodiscard]] Reduce2Fn reduce2_function(DType type, ReduceOp op);

/// The instruction set in use: "baseline", "avx2" or "avx512". It is the best of this CPU unless the
/// environment variable ONEHOP_HOST_ISA names a lesser one. Error{invalid_argument} if the variable names one
/// that this CPU lacks or an unknown one (the functions above throw the same).
[[nodiscard]] std::string_view isa_name();

/// Throws the same errors as isa_name() without making a choice. Called when joining, where all ranks learn
/// of an error.
void require_known_isa();

/// An instruction set this CPU can run.
struct Isa {
  std::string_view name;
  const KernelTable* kernels;
};
/// The instruction set `name`, or the best one if `name` is empty. Throws as isa_name() does.
[[nodiscard]] Isa find_isa(std::string_view name);

}  // namespace onehop::host
