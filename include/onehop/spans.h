// SPDX-License-Identifier: Apache-2.0
// Overloads of the collectives that take spans, vectors and arrays and deduce element type and length.
// collectives.h describes each call.
//
//   std::vector<float> data = ...;
//   onehop::all_reduce(group, data);                         // sum, in place
//   onehop::all_gather(group, part, whole);                  // whole.size() == group.size() * part.size()
//   onehop::broadcast(group, data, onehop::Rank{0});         // in place
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "onehop/collectives.h"
#include "onehop/export.h"
#include "onehop/group.h"
#include "onehop/types.h"

namespace onehop {

/// Maps a C++ type to its element type. Specialize it for your own types, such as __nv_bfloat16.
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

/// A contiguous range: any type from which a std::span can be constructed.
template <class R>
concept Elements = requires(R& data) {
  std::span(data);
};

namespace detail {

/// Pointers, lengths and element type of a call.
struct Spans {
  const void* in = nullptr;
  std::size_t in_count = 0;
  void* out = nullptr;
  std::size_t out_count = 0;
  DType type{};
};

template <class R>
using ElementOf = typename decltype(std::span(std::declval<R&>()))::element_type;

template <class T>
constexpr DType dtype_of() {
  constexpr std::optional<DType> kType = kDTypeOf<std::remove_cv_t<T>>;
  static_assert(kType.has_value(), "no onehop element type for this C++ type; use the untyped overload");
  return *kType;
}

template <class In>
Spans spans_of_input(const In& in) {
  const std::span from(in);
  return {.in = from.data(), .in_count = from.size(), .type = dtype_of<ElementOf<const In>>()};
}
template <class Out>
Spans spans_of_output(Out& out) {
  static_assert(!std::is_const_v<ElementOf<Out>>, "the output of a collective must not be const");
  const std::span to(out);
  return {.out = to.data(), .out_count = to.size(), .type = dtype_of<ElementOf<Out>>()};
}
template <class In, class Out>
Spans spans_of(const In& in, Out& out) {
  static_assert(std::is_same_v<std::remove_cv_t<ElementOf<const In>>, std::remove_cv_t<ElementOf<Out>>>,
                "input and output of a collective must have the same element type");
  Spans both = spans_of_output(out);
  const Spans input = spans_of_input(in);
  both.in = input.in;
  both.in_count = input.in_count;
  return both;
}
template <class Data>
Spans spans_in_place(Data& data) {
  Spans both = spans_of_output(data);
  both.in = both.out;
  both.in_count = both.out_count;
  return both;
}

/// The elements of one block of `data` in a call with one root at most. If the lengths do not match, every
/// rank throws Error{invalid_argument}, which names the rank that passed them, and nothing is written; in a
/// GroupCall the scope throws, and this returns nothing. The length of a span that a rank does not need is
/// ignored.
ONEHOP_API std::optional<std::size_t> block_count(Group& group, Collective collective, const Spans& data,
                                                  Rank root = {});
/// Whether all blocks of an all_to_all_v lie within `data`; otherwise as above.
ONEHOP_API bool has_blocks(Group& group, const Spans& data, const Blocks& in_blocks,
                           const Blocks& out_blocks);

}  // namespace detail

// If the lengths do not match, every rank throws Error{invalid_argument}, which names the rank that passed
// them, and nothing is written. The length of a span that a rank does not need is ignored; it may be empty.

/// In place.
template <Elements Data>
Algorithm all_reduce(Group& group, Data&& data, ReduceOp op = ReduceOp::sum, Stream stream = {},
                     const CallOptions& options = {}) {
  const detail::Spans spans = detail::spans_in_place(data);
  const auto count = detail::block_count(group, Collective::all_reduce, spans);
  if (!count) return Algorithm::none;
  return all_reduce(group, spans.in, spans.out, *count, spans.type, op, stream, options);
}
/// Requires out.size() == in.size().
template <Elements In, Elements Out>
Algorithm all_reduce(Group& group, const In& in, Out&& out, ReduceOp op = ReduceOp::sum, Stream stream = {},
                     const CallOptions& options = {}) {
  const detail::Spans spans = detail::spans_of(in, out);
  const auto count = detail::block_count(group, Collective::all_reduce, spans);
  if (!count) return Algorithm::none;
  return all_reduce(group, spans.in, spans.out, *count, spans.type, op, stream, options);
}

/// Requires out.size() == group.size() * in.size().
template <Elements In, Elements Out>
Algorithm all_gather(Group& group, const In& in, Out&& out, Stream stream = {},
                     const CallOptions& options = {}) {
  const detail::Spans spans = detail::spans_of(in, out);
  const auto count = detail::block_count(group, Collective::all_gather, spans);
  if (!count) return Algorithm::none;
  return all_gather(group, spans.in, spans.out, *count, spans.type, stream, options);
}

/// Requires in.size() == group.size() * out.size().
template <Elements In, Elements Out>
Algorithm reduce_scatter(Group& group, const In& in, Out&& out, ReduceOp op = ReduceOp::sum,
                         Stream stream = {}, const CallOptions& options = {}) {
  const detail::Spans spans = detail::spans_of(in, out);
  const auto count = detail::block_count(group, Collective::reduce_scatter, spans);
  if (!count) return Algorithm::none;
  return reduce_scatter(group, spans.in, spans.out, *count, spans.type, op, stream, options);
}

/// In place.
template <Elements Data>
Algorithm broadcast(Group& group, Data&& data, Rank root, Stream stream = {},
                    const CallOptions& options = {}) {
  const detail::Spans spans = detail::spans_in_place(data);
  const auto count = detail::block_count(group, Collective::broadcast, spans, root);
  if (!count) return Algorithm::none;
  return broadcast(group, spans.in, spans.out, *count, spans.type, root, stream, options);
}
/// Requires in.size() == out.size() on the root.
template <Elements In, Elements Out>
Algorithm broadcast(Group& group, const In& in, Out&& out, Rank root, Stream stream = {},
                    const CallOptions& options = {}) {
  const detail::Spans spans = detail::spans_of(in, out);
  const auto count = detail::block_count(group, Collective::broadcast, spans, root);
  if (!count) return Algorithm::none;
  return broadcast(group, spans.in, spans.out, *count, spans.type, root, stream, options);
}

/// In place.
template <Elements Data>
Algorithm reduce(Group& group, Data&& data, ReduceOp op, Rank root, Stream stream = {},
                 const CallOptions& options = {}) {
  const detail::Spans spans = detail::spans_in_place(data);
  const auto count = detail::block_count(group, Collective::reduce, spans, root);
  if (!count) return Algorithm::none;
  return reduce(group, spans.in, spans.out, *count, spans.type, op, root, stream, options);
}
/// Requires out.size() == in.size() on the root.
template <Elements In, Elements Out>
Algorithm reduce(Group& group, const In& in, Out&& out, ReduceOp op, Rank root, Stream stream = {},
                 const CallOptions& options = {}) {
  const detail::Spans spans = detail::spans_of(in, out);
  const auto count = detail::block_count(group, Collective::reduce, spans, root);
  if (!count) return Algorithm::none;
  return reduce(group, spans.in, spans.out, *count, spans.type, op, root, stream, options);
}

/// Requires in.size() == out.size(), a multiple of group.size().
template <Elements In, Elements Out>
Algorithm all_to_all(Group& group, const In& in, Out&& out, Stream stream = {},
                     const CallOptions& options = {}) {
  const detail::Spans spans = detail::spans_of(in, out);
  const auto count = detail::block_count(group, Collective::all_to_all, spans);
  if (!count) return Algorithm::none;
  return all_to_all(group, spans.in, spans.out, *count, spans.type, stream, options);
}

/// All blocks must lie within `in` and `out`.
template <Elements In, Elements Out>
Algorithm all_to_all_v(Group& group, const In& in, const Blocks& in_blocks, Out&& out,
                       const Blocks& out_blocks, Stream stream = {}, const CallOptions& options = {}) {
  const detail::Spans spans = detail::spans_of(in, out);
  if (!detail::has_blocks(group, spans, in_blocks, out_blocks)) return Algorithm::none;
  return all_to_all_v(group, spans.in, in_blocks, spans.out, out_blocks, spans.type, stream, options);
}

/// Requires out.size() == group.size() * in.size() on the root.
template <Elements In, Elements Out>
Algorithm gather(Group& group, const In& in, Out&& out, Rank root, Stream stream = {},
                 const CallOptions& options = {}) {
  const detail::Spans spans = detail::spans_of(in, out);
  const auto count = detail::block_count(group, Collective::gather, spans, root);
  if (!count) return Algorithm::none;
  return gather(group, spans.in, spans.out, *count, spans.type, root, stream, options);
}

/// Requires in.size() == group.size() * out.size() on the root.
template <Elements In, Elements Out>
Algorithm scatter(Group& group, const In& in, Out&& out, Rank root, Stream stream = {},
                  const CallOptions& options = {}) {
  const detail::Spans spans = detail::spans_of(in, out);
  const auto count = detail::block_count(group, Collective::scatter, spans, root);
  if (!count) return Algorithm::none;
  return scatter(group, spans.in, spans.out, *count, spans.type, root, stream, options);
}

/// Sends all elements of `in`.
template <Elements In>
Algorithm send(Group& group, const In& in, Rank dst, Stream stream = {}, const CallOptions& options = {}) {
  const detail::Spans data = detail::spans_of_input(in);
  return send(group, data.in, data.in_count, data.type, dst, stream, options);
}
/// Receives exactly out.size() elements.
template <Elements Out>
Algorithm recv(Group& group, Out&& out, Rank src, Stream stream = {}, const CallOptions& options = {}) {
  const detail::Spans data = detail::spans_of_output(out);
  return recv(group, data.out, data.out_count, data.type, src, stream, options);
}

}  // namespace onehop
