// SPDX-License-Identifier: Apache-2.0
// Collectives over a group. Each function makes one call (call.h).
#pragma once

#include <cstddef>

#include "onehop/call.h"
#include "onehop/group.h"
#include "onehop/spans.h"
#include "onehop/types.h"

namespace onehop {

// Rules for every collective:
//
// - All ranks of the group make the same call with the same count, type, op, root and options. Otherwise
//   every rank throws Error{mismatch}, which names the difference. If the arguments of one rank are invalid
//   (null, misaligned, overlapping, a root that is not a rank, ...), every rank throws
//   Error{invalid_argument}, which names that rank and the reason. In both cases nothing is written and the
//   group stays usable.
// - `count` is the number of elements of one block and may be 0. `in` and `out` are this rank's buffers. They
//   must be aligned to the element size and may lie in any memory. They must not overlap, except as each call
//   describes under "In place". A pointer that a rank does not need may be null.
// - On host ranks, large data is read directly from the callers' buffers if it lies in the same
//   SymmetricBuffer of this group on all ranks. Otherwise the location of the data makes no difference,
//   except for CallOptions::symmetric.
// - Reductions combine ranks in the order 0..n-1 in the accumulation type (f32 for 8- and 16-bit floats) and
//   round once. Therefore all_reduce, reduce and reduce_scatter produce the same bits on all ranks, with
//   every algorithm and in every run.
// - In a group of one rank a call copies `in` to `out` (premul_sum: multiplied by the factor) and involves no
//   other rank.
// - Each call returns the algorithm that it used. Only all_reduce and reduce offer a choice: forcing
//   Algorithm::two_shot on another call throws Error{invalid_argument}.
// - On GPUs a call is enqueued on `stream` and returns. Ranks compare their calls without waiting for each
//   other. If two ranks make different calls, at least one of them throws Error{mismatch} instead of
//   enqueueing its call, and the group fails on all ranks. The counts of all_to_all_v are not compared. With
//   ONEHOP_CHECK=1 in the environment ranks wait for each other in every call, compare those counts, too, all
//   throw, and the group stays usable.
// - On GPUs a rank that rejects its arguments throws at once. If another rank has enqueued the same call, the
//   group fails with that rejection; if all ranks reject it, the group stays usable. The next collective of
//   the rejecting rank waits until this is decided.
//
// Each also takes spans, vectors and arrays, of which it deduces type and count (spans.h). If their lengths do not match,
// every rank throws Error{invalid_argument}, which names the rank that passed them, and nothing is written. The length of a
// span that a rank does not need is ignored; it may be empty.

/// out[i] = op over all ranks of in[i]. `in` and `out` have `count` elements. In place: `out` is `in`.
inline Algorithm all_reduce(Group& group, const void* in, void* out, std::size_t count, DType type,
                            ReduceOp op = ReduceOp::sum, Stream stream = {},
                            const CallOptions& options = {}) {
  return run(group, {Collective::all_reduce, in, out, count, type, op, {}, stream, options});
}
/// In place.
template <Elements Data>
Algorithm all_reduce(Group& group, Data&& data, ReduceOp op = ReduceOp::sum, Stream stream = {},
                     const CallOptions& options = {}) {
  return detail::run(group, detail::spans_in_place(data),
                     {.collective = Collective::all_reduce, .op = op, .stream = stream, .options = options});
}
/// Requires out.size() == in.size().
template <Elements In, Elements Out>
Algorithm all_reduce(Group& group, const In& in, Out&& out, ReduceOp op = ReduceOp::sum, Stream stream = {},
                     const CallOptions& options = {}) {
  return detail::run(group, detail::spans_of(in, out),
                     {.collective = Collective::all_reduce, .op = op, .stream = stream, .options = options});
}

/// Block r of `out` = rank r's `in`. `in` has `count` elements; `out` has group.size() blocks of `count`
/// elements. In place: `in` is this rank's block of `out`.
inline Algorithm all_gather(Group& group, const void* in, void* out, std::size_t count, DType type,
                            Stream stream = {}, const CallOptions& options = {}) {
  return run(group, {Collective::all_gather, in, out, count, type, {}, {}, stream, options});
}
/// Requires out.size() == group.size() * in.size().
template <Elements In, Elements Out>
Algorithm all_gather(Group& group, const In& in, Out&& out, Stream stream = {},
                     const CallOptions& options = {}) {
  return detail::run(group, detail::spans_of(in, out),
                     {.collective = Collective::all_gather, .stream = stream, .options = options});
}

/// out[i] = op over all ranks s of element i of this rank's block of rank s's `in`. `in` has group.size()
/// blocks of `count` elements; `out` has one. In place: `out` is this rank's block of `in`.
inline Algorithm reduce_scatter(Group& group, const void* in, void* out, std::size_t count, DType type,
                                ReduceOp op = ReduceOp::sum, Stream stream = {},
                                const CallOptions& options = {}) {
  return run(group, {Collective::reduce_scatter, in, out, count, type, op, {}, stream, options});
}
/// Requires in.size() == group.size() * out.size().
template <Elements In, Elements Out>
Algorithm reduce_scatter(Group& group, const In& in, Out&& out, ReduceOp op = ReduceOp::sum,
                         Stream stream = {}, const CallOptions& options = {}) {
  return detail::run(
      group, detail::spans_of(in, out),
      {.collective = Collective::reduce_scatter, .op = op, .stream = stream, .options = options});
}

/// out[i] = in[i] of rank `root`, on every rank. `in` and `out` have `count` elements; only `root` needs
/// `in`. In place: `out` is `in`.
inline Algorithm broadcast(Group& group, const void* in, void* out, std::size_t count, DType type, Rank root,
                           Stream stream = {}, const CallOptions& options = {}) {
  return run(group, {Collective::broadcast, in, out, count, type, {}, root, stream, options});
}
/// In place.
template <Elements Data>
Algorithm broadcast(Group& group, Data&& data, Rank root, Stream stream = {},
                    const CallOptions& options = {}) {
  return detail::run(
      group, detail::spans_in_place(data),
      {.collective = Collective::broadcast, .root = root, .stream = stream, .options = options});
}
/// Requires in.size() == out.size() on the root.
template <Elements In, Elements Out>
Algorithm broadcast(Group& group, const In& in, Out&& out, Rank root, Stream stream = {},
                    const CallOptions& options = {}) {
  return detail::run(
      group, detail::spans_of(in, out),
      {.collective = Collective::broadcast, .root = root, .stream = stream, .options = options});
}

/// out[i] = op over all ranks of in[i], on rank `root`. `in` and `out` have `count` elements. Only `root`
/// needs `out`; it is not written on other ranks. In place: `out` is `in`.
inline Algorithm reduce(Group& group, const void* in, void* out, std::size_t count, DType type, ReduceOp op,
                        Rank root, Stream stream = {}, const CallOptions& options = {}) {
  return run(group, {Collective::reduce, in, out, count, type, op, root, stream, options});
}
/// In place.
template <Elements Data>
Algorithm reduce(Group& group, Data&& data, ReduceOp op, Rank root, Stream stream = {},
                 const CallOptions& options = {}) {
  return detail::run(
      group, detail::spans_in_place(data),
      {.collective = Collective::reduce, .op = op, .root = root, .stream = stream, .options = options});
}
/// Requires out.size() == in.size() on the root.
template <Elements In, Elements Out>
Algorithm reduce(Group& group, const In& in, Out&& out, ReduceOp op, Rank root, Stream stream = {},
                 const CallOptions& options = {}) {
  return detail::run(
      group, detail::spans_of(in, out),
      {.collective = Collective::reduce, .op = op, .root = root, .stream = stream, .options = options});
}

/// Block s of `out` = this rank's block of rank s's `in`. `in` and `out` have group.size() blocks of `count`
/// elements. Not available in place.
inline Algorithm all_to_all(Group& group, const void* in, void* out, std::size_t count, DType type,
                            Stream stream = {}, const CallOptions& options = {}) {
  return run(group, {Collective::all_to_all, in, out, count, type, {}, {}, stream, options});
}
/// Requires in.size() == out.size(), a multiple of group.size().
template <Elements In, Elements Out>
Algorithm all_to_all(Group& group, const In& in, Out&& out, Stream stream = {},
                     const CallOptions& options = {}) {
  return detail::run(group, detail::spans_of(in, out),
                     {.collective = Collective::all_to_all, .stream = stream, .options = options});
}

/// all_to_all with blocks of any size: block s of `out` = this rank's block of rank s's `in`. Each rank
/// passes its own blocks. The count that rank s sends to rank r must equal the count that r expects from s;
/// otherwise every rank throws Error{mismatch}, which names both ranks. GPU ranks compare counts only with
/// ONEHOP_CHECK=1: without it, a difference is a timeout or wrong data. Blocks of `in` may overlap each other;
/// blocks of `out` must not. Not available in place: no block of `in` may overlap a block of `out`.
inline Algorithm all_to_all_v(Group& group, const void* in, const Blocks& in_blocks, void* out,
                              const Blocks& out_blocks, DType type, Stream stream = {},
                              const CallOptions& options = {}) {
  return run(group,
             {Collective::all_to_all_v, in, out, 0, type, {}, {}, stream, options, in_blocks, out_blocks});
}
/// All blocks must lie within `in` and `out`.
template <Elements In, Elements Out>
Algorithm all_to_all_v(Group& group, const In& in, const Blocks& in_blocks, Out&& out,
                       const Blocks& out_blocks, Stream stream = {}, const CallOptions& options = {}) {
  const detail::Spans spans = detail::spans_of(in, out);
  if (!detail::has_blocks(group, spans, in_blocks, out_blocks)) return Algorithm::none;
  return all_to_all_v(group, spans.in, in_blocks, spans.out, out_blocks, spans.type, stream, options);
}

/// Block r of `out` on rank `root` = rank r's `in`. `in` has `count` elements; `out` has group.size() blocks
/// of `count` elements and is needed only on `root`. In place: the root's `in` is its block of `out`.
inline Algorithm gather(Group& group, const void* in, void* out, std::size_t count, DType type, Rank root,
                        Stream stream = {}, const CallOptions& options = {}) {
  return run(group, {Collective::gather, in, out, count, type, {}, root, stream, options});
}
/// Requires out.size() == group.size() * in.size() on the root.
template <Elements In, Elements Out>
Algorithm gather(Group& group, const In& in, Out&& out, Rank root, Stream stream = {},
                 const CallOptions& options = {}) {
  return detail::run(group, detail::spans_of(in, out),
                     {.collective = Collective::gather, .root = root, .stream = stream, .options = options});
}

/// `out` = this rank's block of rank `root`'s `in`. `in` has group.size() blocks of `count` elements and is
/// needed only on `root`; `out` has `count` elements. In place: the root's `out` is its block of `in`.
inline Algorithm scatter(Group& group, const void* in, void* out, std::size_t count, DType type, Rank root,
                         Stream stream = {}, const CallOptions& options = {}) {
  return run(group, {Collective::scatter, in, out, count, type, {}, root, stream, options});
}
/// Requires in.size() == group.size() * out.size() on the root.
template <Elements In, Elements Out>
Algorithm scatter(Group& group, const In& in, Out&& out, Rank root, Stream stream = {},
                  const CallOptions& options = {}) {
  return detail::run(group, detail::spans_of(in, out),
                     {.collective = Collective::scatter, .root = root, .stream = stream, .options = options});
}

// send and recv involve two ranks. Of the rules for collectives, only those about types, counts, alignment
// and streams apply to them:
//
// - The k-th send from rank s to rank r pairs with the k-th recv of r from s. Both pass the same count and
//   type. On host ranks, if these differ, recv writes nothing and throws Error{mismatch}, which names the pair
//   and both values, and the group fails: the send, unless it has already returned, and every later call
//   throw the same error. GPUs do not compare them.
// - A send may return before its recv is called, if the data fits into the internal buffers. Do not rely on
//   that: if two ranks both send first, or a rank sends to itself, make the calls in a GroupCall
//   (group_call.h).
// - Every failure fails the group, because the peer could otherwise mistake the next message for the failed
//   one. This includes invalid arguments (null, misaligned, a rank out of range, ...:
//   Error{invalid_argument}, which names this rank), a timeout, and the death of a rank.

/// Sends `count` elements to rank `dst`. The caller may reuse `in` when the call returns (GPUs: when the
/// stream has passed it). Returns Algorithm::one_shot.
inline Algorithm send(Group& group, const void* in, std::size_t count, DType type, Rank dst,
                      Stream stream = {}, const CallOptions& options = {}) {
  return run(group, {Collective::send, in, nullptr, count, type, {}, dst, stream, options});
}
/// Sends all elements of `in`.
template <Elements In>
Algorithm send(Group& group, const In& in, Rank dst, Stream stream = {}, const CallOptions& options = {}) {
  const detail::Spans data = detail::spans_of_input(in);
  return send(group, data.in, data.in_count, data.type, dst, stream, options);
}

/// Receives `count` elements from rank `src`. Returns Algorithm::one_shot.
inline Algorithm recv(Group& group, void* out, std::size_t count, DType type, Rank src, Stream stream = {},
                      const CallOptions& options = {}) {
  return run(group, {Collective::recv, nullptr, out, count, type, {}, src, stream, options});
}
/// Receives exactly out.size() elements.
template <Elements Out>
Algorithm recv(Group& group, Out&& out, Rank src, Stream stream = {}, const CallOptions& options = {}) {
  const detail::Spans data = detail::spans_of_output(out);
  return recv(group, data.out, data.out_count, data.type, src, stream, options);
}

}  // namespace onehop
