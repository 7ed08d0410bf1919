// SPDX-License-Identifier: Apache-2.0
// onehop for C: tuning tables, which choose the algorithm of a collective by message size. The library has a
// table of its own (onehop_tuning_default); `onehop tune` measures one on a machine, which the field `tuning` of
// onehop_join_options_t names. Part of c_api.h; tuning.h describes the calls.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "onehop/c/base.h"

// C has no alternative to typedef and (void).
// NOLINTBEGIN(modernize-use-using, modernize-redundant-void-arg)
#ifdef __cplusplus
extern "C" {
#endif

typedef int onehop_backend_t;
enum { ONEHOP_BACKEND_HOST = 0, ONEHOP_BACKEND_CUDA = 1 };
/// Element types that share one choice between GPUs.
typedef int onehop_type_class_t;
enum { ONEHOP_TYPE_CLASS_FLOATS = 0, ONEHOP_TYPE_CLASS_ANY = 1 };
/// The outputs of a call: any memory, or symmetric memory that the call declares
/// (onehop_call_options_t.symmetric).
typedef int onehop_buffers_t;
enum { ONEHOP_BUFFERS_ANY = 0, ONEHOP_BUFFERS_SYMMETRIC = 1 };
/// How the GPUs of a group are connected: NVLink between all pairs, or some pairs have PCIe only.
typedef int onehop_links_t;
enum { ONEHOP_LINKS_NVLINK = 0, ONEHOP_LINKS_PCIE = 1 };

/// The names that tuning tables use; "unknown" for an invalid number. The strings are constants, never NULL.
ONEHOP_API const char* onehop_collective_name(onehop_collective_t collective);
ONEHOP_API const char* onehop_backend_name(onehop_backend_t backend);
ONEHOP_API const char* onehop_type_class_name(onehop_type_class_t types);
ONEHOP_API const char* onehop_buffers_name(onehop_buffers_t buffers);
ONEHOP_API const char* onehop_links_name(onehop_links_t links);
ONEHOP_API onehop_status_t onehop_type_class_of(onehop_dtype_t dtype, onehop_type_class_t* types);

/// 1 if a collective has a choice of algorithms, and 0 otherwise or for invalid numbers.
ONEHOP_API int onehop_tuning_has_choice(onehop_backend_t backend, onehop_collective_t collective);
/// The name of algorithm `index` (0, 1, ...) among those of a collective that carry these types to these
/// buffers; NULL beyond the last one and for invalid numbers. The strings are constants.
ONEHOP_API const char* onehop_tuning_algorithm_name(onehop_backend_t backend, onehop_collective_t collective,
                                                    onehop_type_class_t types, onehop_buffers_t buffers,
                                                    size_t index);

/// A tuning table. Immutable and therefore thread-safe.
typedef struct onehop_tuning onehop_tuning_t;

/// Parses a table (docs/wire-formats.md). On PROTOCOL the message names `source`, the row, the field and what
/// is allowed. `source` may be NULL.
ONEHOP_API onehop_status_t onehop_tuning_from_json(const char* json, const char* source,
                                                   onehop_tuning_t** tuning);
/// Returns the library's own table for groups of this many ranks. `links` matters for GPUs only. Every call that
/// has a choice matches a row.
ONEHOP_API onehop_status_t onehop_tuning_default(onehop_backend_t backend, int ranks, onehop_links_t links,
                                                 onehop_tuning_t** tuning);
/// Returns the choices worth measuring for these calls, one row each; "default", the library's own choice, comes
/// first. This is a list of candidates and not a usable table: all of its rows match the same calls.
ONEHOP_API onehop_status_t onehop_tuning_candidates(onehop_backend_t backend, onehop_collective_t collective,
                                                    int ranks, onehop_type_class_t types,
                                                    onehop_buffers_t buffers, onehop_tuning_t** candidates);
ONEHOP_API void onehop_tuning_destroy(onehop_tuning_t* tuning);
/// Writes one row per line. Free the text with onehop_free.
ONEHOP_API onehop_status_t onehop_tuning_to_json(const onehop_tuning_t* tuning, char** json);
/// Name of the GPUs it was measured on; "" if unspecified or if `tuning` is NULL.
ONEHOP_API const char* onehop_tuning_device(const onehop_tuning_t* tuning);

#define ONEHOP_TUNING_NO_LIMIT UINT64_MAX

/// Selects an algorithm for messages of at most `up_to` bytes. TuningRow (tuning.h) defines the size of a
/// message. The strings are owned by the table.
typedef struct onehop_tuning_row_t {
  size_t size;
  onehop_collective_t collective;
  onehop_backend_t backend;
  int ranks;
  onehop_type_class_t types;
  onehop_buffers_t buffers;
  int derived;            ///< 1: not measured on this number of ranks or these links, but derived
  uint64_t up_to;         ///< bytes; ONEHOP_TUNING_NO_LIMIT: all
  const char* algorithm;  ///< for example "lamport_two_shot"; "default": the library's own table decides
  uint64_t chunk;         ///< host: bytes per step; 0: the algorithm determines it
  uint32_t blocks;        ///< GPUs: maximum number of blocks; 0: the algorithm determines it
  uint32_t threads;       ///< GPUs: threads per block; 0: the algorithm determines it
  const char* text;  ///< "default", "two_shot in chunks of 256K", "ll_one_shot, 64 blocks of 128 threads"
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
                                              onehop_buffers_t buffers, uint64_t bytes, size_t* index);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(modernize-use-using, modernize-redundant-void-arg)
