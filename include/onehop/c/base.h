// SPDX-License-Identifier: Apache-2.0
// onehop for C: errors, element types, reductions, and byte strings that the library returns. Part of
// c_api.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "onehop/export.h"
#include "onehop/version.h"

// C requires typedef and (void).
// NOLINTBEGIN(modernize-use-using, modernize-redundant-void-arg)
#ifdef __cplusplus
extern "C" {
#endif

#define ONEHOP_TIMEOUT_DEFAULT (-1)
#define ONEHOP_DEVICE_HOST (-1)

// ---- Errors ----

/// The enumerations of this interface are ints, so that an unknown number is an error and not undefined
/// behavior. The numbers never change; new ones are appended (docs/guide/c-api.md, "Stable ABI").
typedef int onehop_status_t;
enum {
  ONEHOP_OK = 0,
  ONEHOP_ERROR_INVALID_ARGUMENT = 1,  ///< an argument is invalid; nothing was changed
  ONEHOP_ERROR_TIMEOUT = 2,           ///< a deadline passed; the message names the event and the awaited rank
  ONEHOP_ERROR_PEER_LOST = 3,         ///< a rank's process died or left; onehop_last_error_rank names it
  ONEHOP_ERROR_ABORTED = 4,           ///< the group was aborted; leave it and form a new one
  ONEHOP_ERROR_MISMATCH = 5,     ///< ranks made different collective calls; the message names the difference
  ONEHOP_ERROR_REFUSED = 6,      ///< all ranks agreed that this group cannot be formed
  ONEHOP_ERROR_UNSUPPORTED = 7,  ///< this machine, driver or build does not support it
  ONEHOP_ERROR_OUT_OF_RESOURCES = 8,  ///< memory, descriptors, address space
  ONEHOP_ERROR_SYSTEM = 9,            ///< another system call failed; the message holds its errno text
  ONEHOP_ERROR_PROTOCOL = 10,         ///< malformed data from a peer, file or server
  ONEHOP_ERROR_NOT_FOUND = 11,        ///< a key, file or variable does not exist
  ONEHOP_ERROR_DRIVER = 12            ///< another call of the CUDA driver failed; the message holds its error
};

/// The name of a status: "timeout" for ONEHOP_ERROR_TIMEOUT, "ok" for ONEHOP_OK, "unknown" for others. A
/// constant; never NULL.
ONEHOP_API const char* onehop_status_name(onehop_status_t status);
/// The message of this thread's most recent failed call, in one line; "" before the first. Valid until this
/// thread's next failed call; successful calls do not change it.
ONEHOP_API const char* onehop_last_error(void);
/// The rank on which that failure began; -1 if only the caller was affected.
ONEHOP_API int onehop_last_error_rank(void);

/// Sets a function that this thread calls about every 20 ms while one of its calls waits for other ranks, for a
/// stream or for a store (onehop/interrupt.h). If it returns a value other than 0, the call returns
/// ONEHOP_ERROR_ABORTED, and a collective fails on all ranks, as after onehop_group_abort. For runtimes that must
/// handle signals meanwhile. NULL removes the function.
ONEHOP_API void onehop_set_interrupt_check(int (*interrupted)(void* context), void* context);

/// Version of the library at run time, "0.1.0". Compare with ONEHOP_VERSION_STRING, the version of the
/// headers.
ONEHOP_API const char* onehop_version(void);
/// Frees memory that a function of this API returned to the caller. NULL does nothing.
ONEHOP_API void onehop_free(void* memory);

typedef struct onehop_group onehop_group_t;  ///< see c_api.h

// ---- Element types and reductions ----

typedef int onehop_dtype_t;
enum {
  ONEHOP_DTYPE_F16 = 0,
  ONEHOP_DTYPE_BF16 = 1,
  ONEHOP_DTYPE_F32 = 2,
  ONEHOP_DTYPE_F64 = 3,
  ONEHOP_DTYPE_E4M3 = 4,
  ONEHOP_DTYPE_E5M2 = 5,
  ONEHOP_DTYPE_I8 = 6,
  ONEHOP_DTYPE_U8 = 7,
  ONEHOP_DTYPE_I32 = 8,
  ONEHOP_DTYPE_U32 = 9,
  ONEHOP_DTYPE_I64 = 10,
  ONEHOP_DTYPE_U64 = 11
};

typedef int onehop_op_t;
enum {
  ONEHOP_OP_SUM = 0,
  ONEHOP_OP_PROD = 1,
  ONEHOP_OP_MIN = 2,
  ONEHOP_OP_MAX = 3,
  ONEHOP_OP_AVG = 4,
  ONEHOP_OP_PREMUL_SUM = 5
};

typedef int onehop_collective_t;  ///< ONEHOP_COLLECTIVE_* in call.h

/// Bytes per element; 0 for an unknown number.
ONEHOP_API size_t onehop_dtype_size(onehop_dtype_t dtype);
/// Names such as "bf16" and "sum"; "unknown" for an unknown number. Constants; never NULL.
ONEHOP_API const char* onehop_dtype_name(onehop_dtype_t dtype);
ONEHOP_API const char* onehop_op_name(onehop_op_t op);
/// Parse such a name, or an alias such as "float16". INVALID_ARGUMENT lists the known names.
ONEHOP_API onehop_status_t onehop_dtype_parse(const char* name, onehop_dtype_t* dtype);
ONEHOP_API onehop_status_t onehop_op_parse(const char* name, onehop_op_t* op);

// ---- Handle types for sharing GPU memory between processes ----

typedef int onehop_share_by_t;
enum {
  /// Device memory: posix_fd, plus fabric where it works. Groups: the type that ONEHOP_SHARE names, else the
  /// first that works on all ranks.
  ONEHOP_SHARE_BY_AUTOMATIC = 0,
  ONEHOP_SHARE_BY_POSIX_FD = 1,  ///< a file descriptor, passed with onehop_ipc_channel_send_fd
  ONEHOP_SHARE_BY_FABRIC = 2,    ///< a fabric handle; requires a running fabric manager and IMEX
  ONEHOP_SHARE_BY_IPC = 3        ///< CUDA IPC; groups only
};
/// The name of a type: "auto", "fd", "fabric" or "ipc"; "unknown" for an unknown number. A constant; never
/// NULL.
ONEHOP_API const char* onehop_share_by_name(onehop_share_by_t share_by);
/// Parses such a name. INVALID_ARGUMENT lists the known names.
ONEHOP_API onehop_status_t onehop_share_by_parse(const char* name, onehop_share_by_t* share_by);

// ---- Byte strings ----

/// A list of byte strings, such as one per rank. Immutable; thread-safe.
typedef struct onehop_payloads onehop_payloads_t;

/// Number of entries; 0 when `payloads` is NULL.
ONEHOP_API size_t onehop_payloads_count(const onehop_payloads_t* payloads);
/// The bytes of entry `index`, followed by a NUL that onehop_payloads_bytes does not count. Valid until
/// onehop_payloads_destroy. NULL if there is no such entry.
ONEHOP_API const void* onehop_payloads_data(const onehop_payloads_t* payloads, size_t index);
/// Size of entry `index`; 0 if there is no such entry.
ONEHOP_API size_t onehop_payloads_bytes(const onehop_payloads_t* payloads, size_t index);
ONEHOP_API void onehop_payloads_destroy(onehop_payloads_t* payloads);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(modernize-use-using, modernize-redundant-void-arg)
