// SPDX-License-Identifier: Apache-2.0
// onehop for C: errors, element types, reductions, and byte strings handed out by the library. Part of c_api.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "onehop/export.h"
#include "onehop/version.h"

// C has no other way to say these things.
// NOLINTBEGIN(modernize-use-using, modernize-redundant-void-arg)
#ifdef __cplusplus
extern "C" {
#endif

#define ONEHOP_TIMEOUT_DEFAULT (-1)
#define ONEHOP_DEVICE_HOST (-1)

// ---- Errors ----

/// The enumerations of this interface are ints, so that a number this version does not know is an error, not
/// undefined behaviour. The numbers never change; new ones are appended (docs/guide/c-api.md, "Stable ABI").
typedef int onehop_status_t;
enum {
  ONEHOP_OK = 0,
  ONEHOP_ERROR_INVALID_ARGUMENT = 1,  ///< something unusable was passed; nothing was changed
  ONEHOP_ERROR_TIMEOUT = 2,           ///< a deadline passed; the message names what was awaited and from whom
  ONEHOP_ERROR_PEER_LOST = 3,         ///< a rank's process died or left; onehop_last_error_rank names it
  ONEHOP_ERROR_ABORTED = 4,           ///< the group was aborted; leave it and form a new one
  ONEHOP_ERROR_MISMATCH = 5,     ///< ranks disagree about a collective call; the message names the difference
  ONEHOP_ERROR_REFUSED = 6,      ///< all ranks agreed that this group cannot be formed
  ONEHOP_ERROR_UNSUPPORTED = 7,  ///< this machine, driver or build cannot do it
  ONEHOP_ERROR_OUT_OF_RESOURCES = 8,  ///< memory, descriptors, address space
  ONEHOP_ERROR_SYSTEM = 9,            ///< another system call failed; the message holds its errno text
  ONEHOP_ERROR_PROTOCOL = 10,         ///< a peer, file or server sent something malformed
  ONEHOP_ERROR_NOT_FOUND = 11         ///< a key, file or variable does not exist
};

/// "timeout" for ONEHOP_ERROR_TIMEOUT, "ok" for ONEHOP_OK, "unknown" for others. A constant; never NULL.
ONEHOP_API const char* onehop_status_name(onehop_status_t status);
/// The message of this thread's most recent failed call, one line, "" before the first. Valid until this
/// thread's next failed call; calls that succeed leave it alone.
ONEHOP_API const char* onehop_last_error(void);
/// The rank that failure began on; -1 when it concerned the caller alone.
ONEHOP_API int onehop_last_error_rank(void);

/// Version of the library that is running, "0.1.0". Compare with ONEHOP_VERSION_STRING, that of the headers.
ONEHOP_API const char* onehop_version(void);
/// Gives back memory that a function of this header handed to the caller. NULL is fine.
ONEHOP_API void onehop_free(void* memory);

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

/// Bytes per element; 0 for a number that is no element type.
ONEHOP_API size_t onehop_dtype_size(onehop_dtype_t dtype);
/// "bf16", "sum"; "unknown" for a number that is none. Constants; never NULL.
ONEHOP_API const char* onehop_dtype_name(onehop_dtype_t dtype);
ONEHOP_API const char* onehop_op_name(onehop_op_t op);
/// The reverse; also knows aliases such as "float16". INVALID_ARGUMENT lists the known names.
ONEHOP_API onehop_status_t onehop_dtype_parse(const char* name, onehop_dtype_t* dtype);
ONEHOP_API onehop_status_t onehop_op_parse(const char* name, onehop_op_t* op);

// ---- How memory of GPUs travels between processes ----

typedef int onehop_share_by_t;
enum {
  ONEHOP_SHARE_BY_AUTOMATIC =
      0,                         ///< device memory: posix_fd, and fabric as well where it works; groups: what
                                 ///< ONEHOP_SHARE names, else the first that works on all ranks
  ONEHOP_SHARE_BY_POSIX_FD = 1,  ///< a file descriptor, passed on with onehop_ipc_channel_send_fd
  ONEHOP_SHARE_BY_FABRIC = 2,    ///< a fabric handle; needs a running fabric manager and IMEX
  ONEHOP_SHARE_BY_IPC = 3        ///< CUDA IPC; of groups only
};
/// "auto", "fd", "fabric" or "ipc"; "unknown" for a number that is none. Constants; never NULL.
ONEHOP_API const char* onehop_share_by_name(onehop_share_by_t share_by);
/// The reverse. INVALID_ARGUMENT lists the known names.
ONEHOP_API onehop_status_t onehop_share_by_parse(const char* name, onehop_share_by_t* share_by);

// ---- Byte strings ----

/// Byte strings handed out together, such as one per rank. Does not change; thread-safe.
typedef struct onehop_payloads onehop_payloads_t;

/// 0 when `payloads` is NULL.
ONEHOP_API size_t onehop_payloads_count(const onehop_payloads_t* payloads);
/// The bytes of entry `index`, followed by a NUL that onehop_payloads_bytes does not count. Valid until
/// onehop_payloads_destroy. NULL when there is no such entry.
ONEHOP_API const void* onehop_payloads_data(const onehop_payloads_t* payloads, size_t index);
/// 0 when there is no such entry.
ONEHOP_API size_t onehop_payloads_bytes(const onehop_payloads_t* payloads, size_t index);
ONEHOP_API void onehop_payloads_destroy(onehop_payloads_t* payloads);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(modernize-use-using, modernize-redundant-void-arg)
