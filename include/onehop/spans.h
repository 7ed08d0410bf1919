// SPDX-License-Identifier: Apache-2.0
// What the overloads for spans, vectors and arrays rest on. They deduce element type and length of a call, and are in
// collectives.h, each below the function that it calls.
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

#include "onehop/call.h"
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

/// Makes the call with what `data` says.
inline Algorithm run(Group& group, const Spans& data, Call call) {
  const std::optional<std::size_t> count = block_count(group, call.collective, data, call.root);
  if (!count) return Algorithm::none;
  call.in = data.in;
  call.out = data.out;
  call.count = *count;
  call.type = data.type;
  return onehop::run(group, call);
}

}  // namespace detail
}  // namespace onehop

#include "onehop/collectives.h"  // the overloads
