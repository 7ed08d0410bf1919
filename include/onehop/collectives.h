// Collectives over a group.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "onehop/error.h"
#include "onehop/export.h"
#include "onehop/group.h"
#include "onehop/types.h"

namespace onehop {

struct CallOptions {
  /// Force one (it must be able to carry the call); default: the group's policy picks.
  std::optional<Algorithm> algorithm;
  /// Default: the group's timeout.
  std::optional<Duration> timeout;
};

/// out[i] = op over all ranks of in[i]. Collective: same count, type and op on every rank, otherwise every
/// rank throws Error{mismatch} that names the difference and nothing is written.
///
/// Shapes: `count` elements each. `out` may be `in` (in place); other overlaps are Error{invalid_argument}.
/// Any count including 0, any pointer aligned to the element size, any memory; memory inside a
/// SymmetricBuffer of this group at the same offset on every rank is used without copying. Result: ranks are
/// combined in the order 0..n-1 in the accumulation type (f32 for 8- and 16-bit floats) and rounded once, so
/// the bits are the same on all ranks, for every algorithm and in every run.
///
/// Returns the algorithm used; Algorithm::none (nothing done) only under AlgorithmPolicy::legacy.
ONEHOP_API Algorithm all_reduce(Group& group, const void* in, void* out, std::size_t count, DType type,
                                ReduceOp op = ReduceOp::sum, Stream stream = {},
                                const CallOptions& options = {});

template <class T>
inline constexpr std::optional<DType> kDTypeOf = std::nullopt;
template <>
inline constexpr std::optional<DType> kDTypeOf<float> = DType::f32;
template <>
inline constexpr std::optional<DType> kDTypeOf<double> = DType::f64;
template <>
inline constexpr std::optional<DType> kDTypeOf<std::int8_t> = DType::i8;
template <>
inline constexpr std::optional<DType> kDTypeOf<std::uint8_t> = DType::u8;
template <>
inline constexpr std::optional<DType> kDTypeOf<std::int32_t> = DType::i32;
template <>
inline constexpr std::optional<DType> kDTypeOf<std::uint32_t> = DType::u32;
template <>
inline constexpr std::optional<DType> kDTypeOf<std::int64_t> = DType::i64;
template <>
inline constexpr std::optional<DType> kDTypeOf<std::uint64_t> = DType::u64;

/// In place, for types C++ knows.
template <class T>
Algorithm all_reduce(Group& group, std::span<T> data, ReduceOp op = ReduceOp::sum, Stream stream = {},
                     const CallOptions& options = {}) {
  static_assert(kDTypeOf<T>.has_value(),
                "no onehop element type for this C++ type; use the untyped overload");
  return all_reduce(group, data.data(), data.data(), data.size(), *kDTypeOf<T>, op, stream, options);
}

}  // namespace onehop
