// SPDX-License-Identifier: Apache-2.0
// onehop for C: tuning tables, which choose the algorithm of a collective by message size. `onehop tune`
// measures them, and the field `tuning` of onehop_join_options_t names one. Part of c_api.h; tuning.h
// describes the calls.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "onehop/c/base.h"

// C has no alternative to typedef and (void).
// NOLINTBEGIN(modernize-use-using, modernize-redundant-void-arg)
#ifdef __cplusplus
extern "C" {
#endif

typedef int onehop_collective_t;
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
typedef int onehop_backend_t;
enum { ONEHOP_BACKEND_HOST = 0, ONEHOP_BACKEND_CUDA = 1 };
/// Element types that share one choice of protocol between GPUs.
typedef int onehop_type_class_t;
enum { ONEHOP_TYPE_CLASS_FLOATS = 0, ONEHOP_TYPE_CLASS_ANY = 1 };

/// The names that tuning tables use; "unknown" for an invalid number. The strings are constants, never NULL.
ONEHOP_API const char* onehop_collective_name(onehop_collective_t collective);
ONEHOP_API const char* onehop_backend_name(onehop_backend_t backend);
ONEHOP_API const char* onehop_type_class_name(onehop_type_class_t types);
ONEHOP_API onehop_status_t onehop_type_class_of(onehop_dtype_t dtype, onehop_type_class_t* types);

/// A tuning table. Immutable and therefore thread-safe.
typedef struct onehop_tuning onehop_tuning_t;

/// Parses a table (docs/wire-formats.md). On PROTOCOL the message names `source`, the row, the field and what
/// is allowed. `source` may be NULL.
ONEHOP_API onehop_status_t onehop_tuning_from_json(const char* json, const char* source,
                                                   onehop_tuning_t** tuning);
/// Returns the ways worth measuring for a type class, one row each, the default first. This is a list of
/// candidates and not a usable table: all of its rows apply to the same messages.
ONEHOP_API onehop_status_t onehop_tuning_candidates(onehop_backend_t backend, int ranks,
                                                    onehop_type_class_t types, onehop_tuning_t** candidates);
ONEHOP_API void onehop_tuning_destroy(onehop_tuning_t* tuning);
/// Writes one row per line. Free the text with onehop_free.
ONEHOP_API onehop_status_t onehop_tuning_to_json(const onehop_tuning_t* tuning, char** json);
/// Name of the GPUs it was measured on; "" if unspecified or if `tuning` is NULL.
ONEHOP_API const char* onehop_tuning_device(const onehop_tuning_t* tuning);

#define ONEHOP_TUNING_NO_LIMIT UINT64_MAX
#define ONEHOP_TUNING_ALL_BLOCKS UINT32_MAX

typedef int onehop_way_kind_t;
enum {
  ONEHOP_WAY_DEFAULT = 0,  ///< the choice without a table
  ONEHOP_WAY_HOST = 1,     ///< `algorithm` and `chunk` are valid
  ONEHOP_WAY_DEVICE = 2    ///< `blocks` and `threads` are valid; `text` names the protocol
};

/// Selects a way for messages of at most `up_to` bytes.
typedef struct onehop_tuning_row_t {
  size_t size;
  onehop_collective_t collective;
  onehop_backend_t backend;
  int ranks;
  onehop_type_class_t types;
  uint64_t up_to;  ///< bytes; ONEHOP_TUNING_NO_LIMIT: all
  onehop_way_kind_t way;
  int algorithm;     ///< ONEHOP_ALGORITHM_*
  uint64_t chunk;    ///< bytes per step
  uint32_t blocks;   ///< upper limit; ONEHOP_TUNING_ALL_BLOCKS: as many as the GPU holds at once
  uint32_t threads;  ///< per block
  const char* text;  ///< "default", "two-shot in chunks of 256K", "packets, 64 blocks of 128 threads"
} onehop_tuning_row_t;
/// `size` is sizeof(onehop_tuning_row_t) in the caller's build. A NULL `row` is ignored.
ONEHOP_API void onehop_tuning_row_init(onehop_tuning_row_t* row, size_t size);
/// Returns 0 when `tuning` is NULL.
ONEHOP_API size_t onehop_tuning_row_count(const onehop_tuning_t* tuning);
ONEHOP_API onehop_status_t onehop_tuning_row(const onehop_tuning_t* tuning, size_t index,
                                             onehop_tuning_row_t* row);
/// Finds the index of the first row that matches the call; NOT_FOUND if none does.
ONEHOP_API onehop_status_t onehop_tuning_find(const onehop_tuning_t* tuning, onehop_collective_t collective,
                                              onehop_backend_t backend, int ranks, onehop_dtype_t dtype,
                                              uint64_t bytes, size_t* index);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(modernize-use-using, modernize-redundant-void-arg)
