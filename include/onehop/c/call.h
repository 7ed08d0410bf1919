// SPDX-License-Identifier: Apache-2.0
// onehop for C: collectives, send and receive. Each has a function of its own; onehop_run makes any of them from a
// structure. Part of c_api.h; collectives.h describes the calls.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "onehop/c/base.h"

// C has no alternative to typedef and (void).
// NOLINTBEGIN(modernize-use-using, modernize-redundant-void-arg)
#ifdef __cplusplus
extern "C" {
#endif

// ---- Collectives and algorithms ----

/// The calls below and onehop_group_barrier.
enum {
  ONEHOP_COLLECTIVE_ALL_REDUCE = 0,
  ONEHOP_COLLECTIVE_ALL_GATHER = 1,
  ONEHOP_COLLECTIVE_REDUCE_SCATTER = 2,
  ONEHOP_COLLECTIVE_BROADCAST = 3,
  ONEHOP_COLLECTIVE_REDUCE = 4,
  ONEHOP_COLLECTIVE_ALL_TO_ALL = 5,
  ONEHOP_COLLECTIVE_ALL_TO_ALL_V = 6,
  ONEHOP_COLLECTIVE_GATHER = 7,
  ONEHOP_COLLECTIVE_SCATTER = 8,
  ONEHOP_COLLECTIVE_SEND = 9,
  ONEHOP_COLLECTIVE_RECV = 10,
  ONEHOP_COLLECTIVE_BARRIER = 11
};

typedef int onehop_algorithm_t;
enum {
  ONEHOP_ALGORITHM_AUTO = -1,  ///< the group selects the algorithm
  ONEHOP_ALGORITHM_NONE = 0,   ///< of barriers and queued calls; onehop_intra_node_comm_t: left to the caller
  ONEHOP_ALGORITHM_ONE_SHOT = 1,
  ONEHOP_ALGORITHM_TWO_SHOT = 2
};

/// The algorithm's name, such as "one-shot"; "unknown" for an unknown number. A constant; never NULL.
ONEHOP_API const char* onehop_algorithm_name(onehop_algorithm_t algorithm);
/// Parses "one-shot" and "two-shot". INVALID_ARGUMENT lists these names.
ONEHOP_API onehop_status_t onehop_algorithm_parse(const char* name, onehop_algorithm_t* algorithm);

// ---- A call as one value ----

/// One rank's call of a collective, send or receive. Fields that the collective does not use are ignored.
typedef struct onehop_call_t {
  size_t size;
  onehop_collective_t collective;  ///< required
  onehop_dtype_t dtype;            ///< required, but for barriers
  onehop_op_t op;                  ///< of reductions; default ONEHOP_OP_SUM
  int root;                        ///< the root; of send and receive: the peer; default 0
  const void* in;                  ///< default NULL
  void* out;                       ///< default NULL
  size_t count;                    ///< elements of one block; default 0
  void* stream;                    ///< a cudaStream_t; the host backend ignores it; default NULL
  const size_t* in_counts;  ///< of all_to_all_v, as in onehop_all_to_all_v; default NULL, as the next three
  const size_t* in_offsets;
  const size_t* out_counts;
  const size_t* out_offsets;
  int64_t timeout_ms;  ///< this and the rest as in onehop_call_options_t
  double factor;
  onehop_algorithm_t algorithm;
  int symmetric;
  const void* own_factor;
  int own_factor_on_host;
} onehop_call_t;
/// `size` is sizeof(onehop_call_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_call_init(onehop_call_t* call, size_t size);

/// Makes a call, as the function with the collective's name does (a barrier: onehop_group_barrier). `used` receives the
/// algorithm that was used, and ONEHOP_ALGORITHM_NONE for a barrier or a queued call; it may be NULL.
ONEHOP_API onehop_status_t onehop_run(onehop_group_t* group, const onehop_call_t* call,
                                      onehop_algorithm_t* used);

/// Refuses a call that the other ranks make, instead of making it: for a binding that finds an error in its caller's
/// arguments, such as an object that is no array. Always returns an error: normally `status`. The other ranks' calls
/// return the same, with `message` and this rank. `status` should be ONEHOP_ERROR_INVALID_ARGUMENT or
/// ONEHOP_ERROR_OUT_OF_RESOURCES, after which the group is as usable as after an invalid argument; any other one fails
/// the group. At most 1000 bytes of `message` are passed on. In a group of calls, returns ONEHOP_OK and refuses at its
/// end.
ONEHOP_API onehop_status_t onehop_refuse_call(onehop_group_t* group, onehop_collective_t collective,
                                              onehop_status_t status, const char* message);

// ---- Collectives, a function for each ----

typedef struct onehop_call_options_t {
  size_t size;
  int64_t timeout_ms;            ///< default: the group's
  onehop_algorithm_t algorithm;  ///< default ONEHOP_ALGORITHM_AUTO
  double factor;  ///< for ONEHOP_OP_PREMUL_SUM, the same on all ranks; other calls require 1, the default
  /// Not 0: declares that every rank passes `out`, and that it lies at the same offset of the same symmetric
  /// buffer of the group on all ranks (CallOptions::symmetric in onehop/call.h). Default 0.
  int symmetric;
  /// For ONEHOP_OP_PREMUL_SUM, in place of `factor`: the address of this rank's own one, an element of the call's type
  /// (CallOptions::own_factor in onehop/call.h). Default NULL.
  const void* own_factor;
  int own_factor_on_host;  ///< not 0: GPU ranks read `own_factor` from host memory, before the call returns; default 0
} onehop_call_options_t;
/// `size` is sizeof(onehop_call_options_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_call_options_init(onehop_call_options_t* options, size_t size);

/// out[i] = op over all ranks of in[i], for `count` elements. `out` may be `in`. Collective, with the same
/// count, type, op and factor on every rank. `stream` is a cudaStream_t or NULL; the host backend ignores it.
/// `options` and `used`, which receives the algorithm that was used, may be NULL, and so may `in` and `out`
/// if `count` is 0.
ONEHOP_API onehop_status_t onehop_all_reduce(onehop_group_t* group, const void* in, void* out, size_t count,
                                             onehop_dtype_t dtype, onehop_op_t op, void* stream,
                                             const onehop_call_options_t* options, onehop_algorithm_t* used);

/// The other collectives. In all of them `count` is the number of elements of one block, and `stream`,
/// `options` and `used` are as above. Pointers that a rank does not need may be NULL. Invalid arguments of
/// one rank are INVALID_ARGUMENT on all ranks.

/// Block r of `out` = rank r's `in`. In place: `in` is this rank's block of `out`.
ONEHOP_API onehop_status_t onehop_all_gather(onehop_group_t* group, const void* in, void* out, size_t count,
                                             onehop_dtype_t dtype, void* stream,
                                             const onehop_call_options_t* options, onehop_algorithm_t* used);
/// out[i] = op over all ranks s of element i of this rank's block of rank s's `in`. In place: `out` is this
/// rank's block of `in`.
ONEHOP_API onehop_status_t onehop_reduce_scatter(onehop_group_t* group, const void* in, void* out,
                                                 size_t count, onehop_dtype_t dtype, onehop_op_t op,
                                                 void* stream, const onehop_call_options_t* options,
                                                 onehop_algorithm_t* used);
/// out[i] = in[i] of rank `root`. In place: `out` is `in`.
ONEHOP_API onehop_status_t onehop_broadcast(onehop_group_t* group, const void* in, void* out, size_t count,
                                            onehop_dtype_t dtype, int root, void* stream,
                                            const onehop_call_options_t* options, onehop_algorithm_t* used);
/// out[i] = op over all ranks of in[i], on rank `root`. In place: `out` is `in`.
ONEHOP_API onehop_status_t onehop_reduce(onehop_group_t* group, const void* in, void* out, size_t count,
                                         onehop_dtype_t dtype, onehop_op_t op, int root, void* stream,
                                         const onehop_call_options_t* options, onehop_algorithm_t* used);
/// Block s of `out` = this rank's block of rank s's `in`. Not available in place.
ONEHOP_API onehop_status_t onehop_all_to_all(onehop_group_t* group, const void* in, void* out, size_t count,
                                             onehop_dtype_t dtype, void* stream,
                                             const onehop_call_options_t* options, onehop_algorithm_t* used);
/// onehop_all_to_all with blocks of any size. For every rank r of the group, the block sent to r has
/// in_counts[r] elements and begins at element in_offsets[r]; the block received from r has out_counts[r]
/// elements and begins at element out_offsets[r]. All four arrays have one entry per rank. MISMATCH on all
/// ranks if a rank does not send the count that another expects; GPU ranks compare counts only with
/// ONEHOP_CHECK=1.
ONEHOP_API onehop_status_t onehop_all_to_all_v(onehop_group_t* group, const void* in, const size_t* in_counts,
                                               const size_t* in_offsets, void* out, const size_t* out_counts,
                                               const size_t* out_offsets, onehop_dtype_t dtype, void* stream,
                                               const onehop_call_options_t* options,
                                               onehop_algorithm_t* used);
/// Block r of `out` on rank `root` = rank r's `in`. In place: the root's `in` is its block of `out`.
ONEHOP_API onehop_status_t onehop_gather(onehop_group_t* group, const void* in, void* out, size_t count,
                                         onehop_dtype_t dtype, int root, void* stream,
                                         const onehop_call_options_t* options, onehop_algorithm_t* used);
/// `out` = this rank's block of rank `root`'s `in`. In place: the root's `out` is its block of `in`.
ONEHOP_API onehop_status_t onehop_scatter(onehop_group_t* group, const void* in, void* out, size_t count,
                                          onehop_dtype_t dtype, int root, void* stream,
                                          const onehop_call_options_t* options, onehop_algorithm_t* used);

// ---- Send and receive, groups of calls ----

/// Sends `count` elements to rank `dst`. The k-th send of a pair of ranks matches its k-th receive, which
/// must pass the same count and type. Between host ranks a difference is MISMATCH and fails the group. The
/// call may return before the receive is called, but do not rely on that. Invalid arguments are
/// INVALID_ARGUMENT and fail the group. `stream`, `options` and `used` as for onehop_all_reduce.
ONEHOP_API onehop_status_t onehop_send(onehop_group_t* group, const void* in, size_t count,
                                       onehop_dtype_t dtype, int dst, void* stream,
                                       const onehop_call_options_t* options, onehop_algorithm_t* used);
/// Receives `count` elements from rank `src`.
ONEHOP_API onehop_status_t onehop_recv(onehop_group_t* group, void* out, size_t count, onehop_dtype_t dtype,
                                       int src, void* stream, const onehop_call_options_t* options,
                                       onehop_algorithm_t* used);

/// Begins a group of calls. Until onehop_group_call_end, the sends, receives and collectives of this thread
/// are queued, and `used` receives ONEHOP_ALGORITHM_NONE. The end executes them: first each group's sends and
/// receives, which progress concurrently in any order, then its collectives, none of which may access memory
/// that another one writes. Groups, data and block arrays must stay valid until then. Calls nest: only the
/// outermost end executes the calls.
ONEHOP_API onehop_status_t onehop_group_call_begin(void);
/// Ends the group of calls, also if it fails. Returns after all calls have been handled, with the failure of
/// the group that appeared first.
ONEHOP_API onehop_status_t onehop_group_call_end(void);
/// Replaces onehop_group_call_end: drops the calls queued since the matching begin.
ONEHOP_API onehop_status_t onehop_group_call_drop(void);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(modernize-use-using, modernize-redundant-void-arg)
