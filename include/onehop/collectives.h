// SPDX-License-Identifier: Apache-2.0
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
  /// Default: the group's timeout. On GPUs that of each wait of the call's kernels, from when it begins.
  std::optional<Duration> timeout;
  /// A promise that every rank of the call makes: `out`, which all ranks pass, also those that get nothing,
  /// lies at the same place of one SymmetricBuffer of this group on each; and an all_reduce is in place on
  /// all ranks or on none. On GPUs copy engines then bring long blocks of all_gather, all_to_all, gather and
  /// scatter, of broadcast between two ranks, and of all_reduce where it is not in place, straight there,
  /// which is quicker than what kernels do. Other calls take no notice of it. If `out` is in no such buffer,
  /// or at another place than a peer's, the group fails, and what lies in the buffer is undefined.
  bool symmetric = false;
  /// Of ReduceOp::premul_sum, the same on all ranks; other calls take no other than 1. The sum over ranks is
  /// multiplied by it, rounded to the accumulation type, before the only rounding. For integers it must be
  /// one that the element type holds exactly, and the product wraps; else Error{invalid_argument}.
  double factor = 1.0;
};

// What holds for every collective:
//
// - All ranks of the group make the same call: same count, type, op, root and options. Otherwise every rank
//   throws Error{mismatch} that names the difference; when one rank's arguments are unusable (null,
//   misaligned, overlapping, a root that is no rank, ...), every rank throws Error{invalid_argument} that
//   names the rank and the reason. Nothing is written then, and the group stays usable.
// - `count` is the elements of one block, any number including 0. `in` and `out` are this rank's; they are
//   aligned to the element size, in any memory, and do not overlap but in the one way that a call names "in
//   place". A pointer that a rank does not need may be null.
// - On host ranks, large data that lies in one SymmetricBuffer of this group on all ranks is read where it
//   lies. Nothing else depends on where data lies, but for what CallOptions::symmetric promises.
// - Reductions combine ranks in the order 0..n-1 in the accumulation type (f32 for 8- and 16-bit floats) and
//   round once, so all_reduce, reduce and reduce_scatter give the same bits on all ranks, for every algorithm
//   and in every run.
// - In a group of one rank a call copies `in` to `out` (premul_sum: times the factor), and needs no other
// rank.
// - The algorithm used is returned. Only all_reduce and reduce have a choice: forcing Algorithm::two_shot on
//   another one is Error{invalid_argument}.
// - On GPUs a call is queued on `stream`, and ranks compare their calls only with ONEHOP_CHECK=1 in the
//   environment: without it, calls that differ end in a timeout or in wrong data. A rank that refuses its
//   arguments throws at once. If another rank has queued the same call, the group fails with that refusal; if
//   all ranks refuse it, the group stays usable. This rank's next collective waits until that is known.

/// out[i] = op over all ranks of in[i]. `count` elements each. In place: `out` is `in`.
///
/// Returns the algorithm used; Algorithm::none (nothing done) only under AlgorithmPolicy::legacy, to which no
/// other collective is subject.
ONEHOP_API Algorithm all_reduce(Group& group, const void* in, void* out, std::size_t count, DType type,
                                ReduceOp op = ReduceOp::sum, Stream stream = {},
                                const CallOptions& options = {});

/// Block r of `out` = rank r's `in`. `in` has `count` elements, `out` group.size() blocks of as many. In
/// place: `in` is this rank's block of `out`.
ONEHOP_API Algorithm all_gather(Group& group, const void* in, void* out, std::size_t count, DType type,
                                Stream stream = {}, const CallOptions& options = {});

/// out[i] = op over all ranks of element i of this rank's block of their `in`. `in` has group.size() blocks
/// of `count` elements, `out` has one. In place: `out` is this rank's block of `in`.
ONEHOP_API Algorithm reduce_scatter(Group& group, const void* in, void* out, std::size_t count, DType type,
                                    ReduceOp op = ReduceOp::sum, Stream stream = {},
                                    const CallOptions& options = {});

/// out[i] = in[i] of rank `root`, on every rank. `count` elements each; `in` is needed on `root` alone. In
/// place: `out` is `in`.
ONEHOP_API Algorithm broadcast(Group& group, const void* in, void* out, std::size_t count, DType type,
                               Rank root, Stream stream = {}, const CallOptions& options = {});

/// out[i] = op over all ranks of in[i], on rank `root`. `count` elements each; `out` is needed on `root`
/// alone and not written elsewhere. In place: `out` is `in`.
ONEHOP_API Algorithm reduce(Group& group, const void* in, void* out, std::size_t count, DType type,
                            ReduceOp op, Rank root, Stream stream = {}, const CallOptions& options = {});

/// Block s of `out` = this rank's block of rank s's `in`. group.size() blocks of `count` elements each.
/// Cannot be made in place.
ONEHOP_API Algorithm all_to_all(Group& group, const void* in, void* out, std::size_t count, DType type,
                                Stream stream = {}, const CallOptions& options = {});

/// all_to_all with blocks of any size: block s of `out` = this rank's block of rank s's `in`. Each rank
/// passes its own blocks. What rank s sends to rank r must be what r expects from s; otherwise every rank
/// throws Error{mismatch} that names the two. Blocks of `in` may share elements, those of `out` must not.
/// Cannot be made in place: no block of `in` may overlap one of `out`.
ONEHOP_API Algorithm all_to_all_v(Group& group, const void* in, const Blocks& in_blocks, void* out,
                                  const Blocks& out_blocks, DType type, Stream stream = {},
                                  const CallOptions& options = {});

/// Block r of `out` on rank `root` = rank r's `in`. `in` has `count` elements; `out`, which is needed on
/// `root` alone, group.size() blocks of as many. In place: the root's `in` is its block of `out`.
ONEHOP_API Algorithm gather(Group& group, const void* in, void* out, std::size_t count, DType type, Rank root,
                            Stream stream = {}, const CallOptions& options = {});

/// out = this rank's block of `in` of rank `root`. `in`, which is needed on `root` alone, has group.size()
/// blocks of `count` elements, `out` one. In place: the root's `out` is its block of `in`.
ONEHOP_API Algorithm scatter(Group& group, const void* in, void* out, std::size_t count, DType type,
                             Rank root, Stream stream = {}, const CallOptions& options = {});

// send and recv concern two ranks, and nothing of what holds for collectives but types, counts, alignment and
// what the stream is for:
//
// - The k-th send from rank s to rank r pairs with the k-th recv of r from s. Both name the same count and
//   type. Where host ranks do not, recv throws Error{mismatch} that names the pair and both, and so do the
//   send, if it has not returned, and every later call: the group has failed. GPUs do not compare.
// - A send may return before its recv is called, when the data fits what is buffered. Nobody may count on
//   that: two ranks that both send first, or one that sends to itself, do so in a GroupCall (group_call.h).
// - Whatever fails is the failure of the group: arguments that are unusable (null, misaligned, a rank that is
//   none, ...: Error{invalid_argument} that names this rank), a timeout, a rank that died. The peer must not
//   take the next message for the one that failed.

/// Sends `count` elements to rank `dst`. `in` is the caller's again when the call returns (GPUs: when the
/// stream has got there). Returns Algorithm::one_shot.
ONEHOP_API Algorithm send(Group& group, const void* in, std::size_t count, DType type, Rank dst,
                          Stream stream = {}, const CallOptions& options = {});

/// Receives `count` elements from rank `src`. Returns Algorithm::one_shot.
ONEHOP_API Algorithm recv(Group& group, void* out, std::size_t count, DType type, Rank src,
                          Stream stream = {}, const CallOptions& options = {});

}  // namespace onehop

#include "onehop/spans.h"  // the same for spans, vectors and arrays
