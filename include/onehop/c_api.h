// onehop for C and for languages that call C.
//
// Rules that hold for every function:
// - Functions that can fail return an onehop_status_t: ONEHOP_OK (0), or an error whose message and rank
//   onehop_last_error and onehop_last_error_rank give, on the thread that made the call. Results are written
//   only on success. Nothing is ever thrown across this interface.
// - A null pointer where none is allowed is ONEHOP_ERROR_INVALID_ARGUMENT that names the parameter.
// - Handles are owned by the caller and given back with their *_destroy function, which accepts NULL, never
// fails and
//   may be called in any order: what still needs a store, group or buffer keeps it alive itself.
// - Handles are thread-safe except for their destruction, which must not overlap other calls on the same
// handle.
// - Strings are UTF-8 and end with a NUL; sizes are bytes; times are milliseconds. Every wait has a deadline:
//   ONEHOP_TIMEOUT_DEFAULT picks the group's (stores: 30 s), other negative values are invalid.
// - Structures begin with their size, so that they can grow: fill them with their *_init function, then set
// fields.
//
// What the calls do is described once, in the C++ headers: store.h, group.h, buffer.h, pool.h,
// collectives.h, topology.h.
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
/// undefined behaviour. The numbers never change; new ones are appended.
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

// ---- Stores: through which ranks find each other ----

typedef struct onehop_store onehop_store_t;

/// For ranks that are threads of one process.
ONEHOP_API onehop_status_t onehop_store_memory(onehop_store_t** store);
/// One file per key in `directory`, which is created if missing and must belong to the caller.
ONEHOP_API onehop_status_t onehop_store_file(const char* directory, onehop_store_t** store);
/// The same store with `prefix` and a slash before every key.
ONEHOP_API onehop_status_t onehop_store_prefix(onehop_store_t* store, const char* prefix,
                                               onehop_store_t** prefixed);

typedef struct onehop_tcp_options_t {
  size_t size;
  const char* host;    ///< default "127.0.0.1"
  const char* secret;  ///< shared by server and clients; default none, which allows loopback only
  int64_t timeout_ms;  ///< for a client to connect; operations have their own
  uint16_t port;       ///< default 0: a server picks a free one
} onehop_tcp_options_t;
/// `size` is sizeof(onehop_tcp_options_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_tcp_options_init(onehop_tcp_options_t* options, size_t size);
/// A client; waits until the server is up.
ONEHOP_API onehop_status_t onehop_store_tcp(const onehop_tcp_options_t* options, onehop_store_t** store);

typedef struct onehop_tcp_server onehop_tcp_server_t;
ONEHOP_API onehop_status_t onehop_tcp_server_start(const onehop_tcp_options_t* options,
                                                   onehop_tcp_server_t** server);
/// 0 when `server` is NULL.
ONEHOP_API uint16_t onehop_tcp_server_port(const onehop_tcp_server_t* server);
/// Stops the server.
ONEHOP_API void onehop_tcp_server_destroy(onehop_tcp_server_t* server);

/// How a callback hands back a value: it calls onehop_reply_set, which copies. Valid inside that callback
/// only.
typedef struct onehop_reply onehop_reply_t;
ONEHOP_API onehop_status_t onehop_reply_set(onehop_reply_t* reply, const void* value, size_t bytes);

/// Your own store. The five functions are required, get `context` first, return ONEHOP_OK or an error and may
/// be called from several threads at once. Each must end within timeout_ms milliseconds, with
/// ONEHOP_ERROR_TIMEOUT if need be; 0 asks for one attempt.
typedef struct onehop_store_callbacks_t {
  size_t size;
  void* context;
  onehop_status_t (*set)(void* context, const char* key, const void* value, size_t bytes, int64_t timeout_ms);
  /// Waits for the key and replies with its value; ONEHOP_ERROR_TIMEOUT when it does not appear in time.
  onehop_status_t (*get)(void* context, const char* key, int64_t timeout_ms, onehop_reply_t* value);
  onehop_status_t (*add)(void* context, const char* key, int64_t delta, int64_t timeout_ms, int64_t* result);
  /// Replies with the value the key holds afterwards (see onehop_store_compare_set).
  onehop_status_t (*compare_set)(void* context, const char* key, const void* expected, size_t expected_bytes,
                                 const void* desired, size_t desired_bytes, int64_t timeout_ms,
                                 onehop_reply_t* value);
  onehop_status_t (*delete_key)(void* context, const char* key, int64_t timeout_ms, int* existed);
  /// Called once, when nothing uses the store any more; also when creating it fails. May be NULL.
  void (*destroy)(void* context);
} onehop_store_callbacks_t;
/// All fields NULL. `size` is sizeof(onehop_store_callbacks_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_store_callbacks_init(onehop_store_callbacks_t* callbacks, size_t size);
ONEHOP_API onehop_status_t onehop_store_callbacks(const onehop_store_callbacks_t* callbacks,
                                                  onehop_store_t** store);

ONEHOP_API void onehop_store_destroy(onehop_store_t* store);

/// Every operation ends within timeout_ms: ONEHOP_ERROR_TIMEOUT when a lock or a server kept it waiting for
/// longer. Sets or overwrites. `value` may be NULL when `bytes` is 0.
ONEHOP_API onehop_status_t onehop_store_set(onehop_store_t* store, const char* key, const void* value,
                                            size_t bytes, int64_t timeout_ms);
/// Waits until the key exists. The caller gives `*value` back with onehop_free; it is followed by a NUL that
/// `*bytes` does not count.
ONEHOP_API onehop_status_t onehop_store_get(onehop_store_t* store, const char* key, int64_t timeout_ms,
                                            char** value, size_t* bytes);
/// Waits until all `count` keys exist.
ONEHOP_API onehop_status_t onehop_store_wait(onehop_store_t* store, const char* const* keys, size_t count,
                                             int64_t timeout_ms);
/// Adds to a decimal counter (a missing key counts as 0). `result`, the new value, may be NULL.
ONEHOP_API onehop_status_t onehop_store_add(onehop_store_t* store, const char* key, int64_t delta,
                                            int64_t timeout_ms, int64_t* result);
/// Sets the key to `desired` if it holds `expected`; an empty `expected` also matches a missing key. `*value`
/// is what the key holds afterwards, handed out as by onehop_store_get.
ONEHOP_API onehop_status_t onehop_store_compare_set(onehop_store_t* store, const char* key,
                                                    const void* expected, size_t expected_bytes,
                                                    const void* desired, size_t desired_bytes,
                                                    int64_t timeout_ms, char** value, size_t* bytes);
/// `existed` (1 or 0) may be NULL.
ONEHOP_API onehop_status_t onehop_store_delete(onehop_store_t* store, const char* key, int64_t timeout_ms,
                                               int* existed);

// ---- Groups ----

typedef struct onehop_group onehop_group_t;

typedef int onehop_policy_t;
enum { ONEHOP_POLICY_TUNED = 0, ONEHOP_POLICY_LEGACY = 1 };

typedef struct onehop_join_options_t {
  size_t size;
  const char* name;        ///< default "world"; groups on one store at the same time need different names
  int64_t timeout_ms;      ///< for joining, and the default of the group's calls
  size_t scratch_bytes;    ///< each rank's buffer for staging
  int rank;                ///< required by onehop_group_join
  int world_size;          ///< required by onehop_group_join
  int device;              ///< CUDA device ordinal; default ONEHOP_DEVICE_HOST
  onehop_policy_t policy;  ///< default ONEHOP_POLICY_TUNED
  int allow_overlapping_devices;  ///< default 0
  const char* tuning;  ///< file with a tuning table, of which rank 0's counts; default: that of ONEHOP_TUNING
  size_t copy_scratch_bytes;  ///< GPUs: memory for copy engines, which carry long messages; default 0: none
} onehop_join_options_t;
/// `size` is sizeof(onehop_join_options_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_join_options_init(onehop_join_options_t* options, size_t size);

/// Collective: every rank gets a group, or every rank gets the same error.
ONEHOP_API onehop_status_t onehop_group_join(onehop_store_t* store, const onehop_join_options_t* options,
                                             onehop_group_t** group);
/// Rank, size and store from the environment of onehop launch, torchrun, mpirun or srun. `options` may be
/// NULL; its rank and world_size are ignored.
ONEHOP_API onehop_status_t onehop_group_from_env(const onehop_join_options_t* options,
                                                 onehop_group_t** group);
/// Leaves the group.
ONEHOP_API void onehop_group_destroy(onehop_group_t* group);

/// -1 when `group` is NULL.
ONEHOP_API int onehop_group_rank(const onehop_group_t* group);
/// 0 when `group` is NULL.
ONEHOP_API int onehop_group_size(const onehop_group_t* group);
/// 32 hex digits, the same on all ranks; valid while the handle lives. "" when `group` is NULL.
ONEHOP_API const char* onehop_group_id(const onehop_group_t* group);

/// Collective: all ranks arrive.
ONEHOP_API onehop_status_t onehop_group_barrier(onehop_group_t* group, int64_t timeout_ms);
/// Collective. Ranks of one colour form a new group, ordered by key, then by rank. A negative colour gets
/// NULL.
ONEHOP_API onehop_status_t onehop_group_split(onehop_group_t* group, int color, int key,
                                              onehop_group_t** part);
/// ONEHOP_OK while the group is usable; otherwise what any call on it would return now.
ONEHOP_API onehop_status_t onehop_group_check(const onehop_group_t* group);
/// Ends every rank's current and later calls with ONEHOP_ERROR_ABORTED. Not collective; usable from any
/// thread, also while another thread of this rank waits in a call. `reason` may be NULL. NULL `group` does
/// nothing.
ONEHOP_API void onehop_group_abort(onehop_group_t* group, const char* reason);
/// Leaves now: later calls return an error. The handle still needs onehop_group_destroy. NULL does nothing.
ONEHOP_API void onehop_group_leave(onehop_group_t* group);

// ---- Symmetric memory ----

typedef struct onehop_buffer onehop_buffer_t;

/// Collective: the same number of zeroed bytes on every rank, mapped by every rank.
ONEHOP_API onehop_status_t onehop_group_allocate(onehop_group_t* group, size_t bytes,
                                                 onehop_buffer_t** buffer);
/// Collective: `bytes` bytes at `data` on this rank's GPU, which the caller keeps allocated and frees after
/// all ranks have destroyed the buffer. Every rank registers as many bytes: MISMATCH. INVALID_ARGUMENT on all
/// ranks when one's memory cannot be shared; UNSUPPORTED in a group of host ranks.
ONEHOP_API onehop_status_t onehop_group_register_buffer(onehop_group_t* group, void* data, size_t bytes,
                                                        onehop_buffer_t** buffer);
typedef struct onehop_buffer_options_t {
  size_t size;
  int channels;  ///< of signals, 1 to 4096; default 16
} onehop_buffer_options_t;
/// `size` is sizeof(onehop_buffer_options_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_buffer_options_init(onehop_buffer_options_t* options, size_t size);
/// The same with options, which must be the same on all ranks: MISMATCH. `options` may be NULL.
ONEHOP_API onehop_status_t onehop_group_allocate_with(onehop_group_t* group, size_t bytes,
                                                      const onehop_buffer_options_t* options,
                                                      onehop_buffer_t** buffer);
ONEHOP_API onehop_status_t onehop_group_register_buffer_with(onehop_group_t* group, void* data, size_t bytes,
                                                             const onehop_buffer_options_t* options,
                                                             onehop_buffer_t** buffer);
/// Not collective.
ONEHOP_API void onehop_buffer_destroy(onehop_buffer_t* buffer);

/// This rank's part; NULL when `buffer` is NULL. Valid while this handle or a sub-buffer of it lives.
ONEHOP_API void* onehop_buffer_local(const onehop_buffer_t* buffer);
/// Usable bytes of each rank's part; 0 when `buffer` is NULL.
ONEHOP_API size_t onehop_buffer_bytes(const onehop_buffer_t* buffer);
/// Channels of signals; 0 when `buffer` is NULL.
ONEHOP_API int onehop_buffer_channels(const onehop_buffer_t* buffer);
/// Rank `rank`'s part in this rank's address space.
ONEHOP_API onehop_status_t onehop_buffer_peer(const onehop_buffer_t* buffer, int rank, void** peer);
/// `bytes` bytes at `offset` of every rank's part, sharing the signal channels. Not collective.
ONEHOP_API onehop_status_t onehop_buffer_sub(const onehop_buffer_t* buffer, size_t offset, size_t bytes,
                                             onehop_buffer_t** part);
/// All ranks arrive; what any rank wrote before is visible to all after. Channels are 0 to
/// onehop_buffer_channels - 1; two threads must not use one at the same time. ONEHOP_TIMEOUT_DEFAULT is 30 s
/// here.
ONEHOP_API onehop_status_t onehop_buffer_barrier(const onehop_buffer_t* buffer, int channel,
                                                 int64_t timeout_ms);
/// Tells `rank` that what this rank wrote before is ready.
ONEHOP_API onehop_status_t onehop_buffer_put_signal(const onehop_buffer_t* buffer, int rank, int channel);
/// Waits for the next signal from `rank`. ONEHOP_TIMEOUT_DEFAULT is 30 s here.
ONEHOP_API onehop_status_t onehop_buffer_wait_signal(const onehop_buffer_t* buffer, int rank, int channel,
                                                     int64_t timeout_ms);

// ---- A pool of symmetric memory, for frameworks ----

typedef struct onehop_pool onehop_pool_t;

/// Collective: a pool of `bytes` bytes on every rank. Ranks that make the same calls on it in the same order
/// get the same offsets, without meeting (pool.h).
ONEHOP_API onehop_status_t onehop_pool_create(onehop_group_t* group, size_t bytes, onehop_pool_t** pool);
/// Not collective. Ends its use by onehop_pool_malloc; what that handed out stays until it is freed.
ONEHOP_API void onehop_pool_destroy(onehop_pool_t* pool);
/// A handle of all of its memory, to be destroyed: for peers' pointers, signals and barriers.
ONEHOP_API onehop_status_t onehop_pool_buffer(const onehop_pool_t* pool, onehop_buffer_t** buffer);
/// How far `data` is from the beginning of the pool's memory.
ONEHOP_API onehop_status_t onehop_pool_offset(const onehop_pool_t* pool, const void* data, size_t* offset);

/// From here on onehop_pool_malloc takes memory of the device of the pool's group from this pool, in the
/// whole process: one rank per device and process can do so. Replaces the pool that did so before.
ONEHOP_API onehop_status_t onehop_pool_use(onehop_pool_t* pool);
/// These two are what PyTorch's torch.cuda.memory.CUDAPluggableAllocator calls. NULL when no pool is used for
/// `device` or when it has no room: onehop_last_error says which. Aligned to 512 bytes. `stream` is not
/// looked at: the framework orders work on memory that it frees on one stream and uses again on another.
ONEHOP_API void* onehop_pool_malloc(size_t bytes, int device, void* stream);
/// Gives it back to the pool that it came from, whichever is in use now. NULL does nothing.
ONEHOP_API void onehop_pool_free(void* data, size_t bytes, int device, void* stream);

// ---- Collectives ----

typedef int onehop_algorithm_t;
enum {
  ONEHOP_ALGORITHM_AUTO = -1,  ///< the group's policy picks
  ONEHOP_ALGORITHM_NONE = 0,  ///< reported when the legacy policy declined, and by calls that are only queued
  ONEHOP_ALGORITHM_ONE_SHOT = 1,
  ONEHOP_ALGORITHM_TWO_SHOT = 2
};

typedef struct onehop_call_options_t {
  size_t size;
  int64_t timeout_ms;            ///< default: the group's
  onehop_algorithm_t algorithm;  ///< default ONEHOP_ALGORITHM_AUTO
  double factor;  ///< of ONEHOP_OP_PREMUL_SUM, the same on all ranks; default 1, all that other calls take
  /// Not 0: a promise that `out`, which every rank passes, lies at the same place of one symmetric buffer of
  /// the group on all ranks (CallOptions::symmetric in collectives.h); default 0.
  int symmetric;
} onehop_call_options_t;
/// `size` is sizeof(onehop_call_options_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_call_options_init(onehop_call_options_t* options, size_t size);

/// out[i] = op over all ranks of in[i], for `count` elements. `out` may be `in`. Collective: same count,
/// type, op and factor on every rank. `stream` is a cudaStream_t or NULL; the host backend ignores it.
/// `options` and `used`, the algorithm that ran, may be NULL; so may `in` and `out` when `count` is 0.
ONEHOP_API onehop_status_t onehop_all_reduce(onehop_group_t* group, const void* in, void* out, size_t count,
                                             onehop_dtype_t dtype, onehop_op_t op, void* stream,
                                             const onehop_call_options_t* options, onehop_algorithm_t* used);

/// The other collectives. In all of them `count` is the elements of one block, `stream`, `options` and `used`
/// are as above, and pointers that a rank does not need may be NULL. Unusable arguments of one rank are
/// INVALID_ARGUMENT on all.

/// Block r of `out` = rank r's `in`. In place: `in` is this rank's block of `out`.
ONEHOP_API onehop_status_t onehop_all_gather(onehop_group_t* group, const void* in, void* out, size_t count,
                                             onehop_dtype_t dtype, void* stream,
                                             const onehop_call_options_t* options, onehop_algorithm_t* used);
/// out[i] = op over all ranks of element i of this rank's block of their `in`. In place: `out` is this rank's
/// block of `in`.
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
/// Block s of `out` = this rank's block of rank s's `in`. Not in place.
ONEHOP_API onehop_status_t onehop_all_to_all(onehop_group_t* group, const void* in, void* out, size_t count,
                                             onehop_dtype_t dtype, void* stream,
                                             const onehop_call_options_t* options, onehop_algorithm_t* used);
/// The same with blocks of any size: for every rank r of the group, the block for (from) r has in_counts[r]
/// (out_counts[r]) elements from element in_offsets[r] (out_offsets[r]) on. All four have an entry per rank.
/// MISMATCH on all ranks if one does not send what another expects.
ONEHOP_API onehop_status_t onehop_all_to_all_v(onehop_group_t* group, const void* in, const size_t* in_counts,
                                               const size_t* in_offsets, void* out, const size_t* out_counts,
                                               const size_t* out_offsets, onehop_dtype_t dtype, void* stream,
                                               const onehop_call_options_t* options,
                                               onehop_algorithm_t* used);
/// Block r of `out` on rank `root` = rank r's `in`. In place: the root's `in` is its block of `out`.
ONEHOP_API onehop_status_t onehop_gather(onehop_group_t* group, const void* in, void* out, size_t count,
                                         onehop_dtype_t dtype, int root, void* stream,
                                         const onehop_call_options_t* options, onehop_algorithm_t* used);
/// out = this rank's block of `in` of rank `root`. In place: the root's `out` is its block of `in`.
ONEHOP_API onehop_status_t onehop_scatter(onehop_group_t* group, const void* in, void* out, size_t count,
                                          onehop_dtype_t dtype, int root, void* stream,
                                          const onehop_call_options_t* options, onehop_algorithm_t* used);

// ---- Send and receive, groups of calls ----

/// Sends `count` elements to rank `dst`, whose matching onehop_recv names the same count and type: the k-th
/// send of a pair goes to its k-th receive. Between host ranks a difference is MISMATCH, and the failure of
/// the group. May return before the receive is called; nobody may count on that. Unusable arguments are
/// INVALID_ARGUMENT, and the failure of the group. `stream`, `options` and `used` as for onehop_all_reduce.
ONEHOP_API onehop_status_t onehop_send(onehop_group_t* group, const void* in, size_t count,
                                       onehop_dtype_t dtype, int dst, void* stream,
                                       const onehop_call_options_t* options, onehop_algorithm_t* used);
/// Receives `count` elements from rank `src`.
ONEHOP_API onehop_status_t onehop_recv(onehop_group_t* group, void* out, size_t count, onehop_dtype_t dtype,
                                       int src, void* stream, const onehop_call_options_t* options,
                                       onehop_algorithm_t* used);

/// From here on, sends, receives and collectives of this thread are queued (`used` is
/// ONEHOP_ALGORITHM_NONE then), until onehop_group_call_end makes all of them: the sends and receives of each
/// group first, which progress together in whatever order they were made, then its collectives, of which
/// none may read or write what another one writes. Groups, data and block arrays stay where they are until
/// then. May be nested: only the outermost end makes the calls.
ONEHOP_API onehop_status_t onehop_group_call_begin(void);
/// The first failure, in the order in which the groups first came, after all have been dealt with. Ends
/// the group of calls in any case.
ONEHOP_API onehop_status_t onehop_group_call_end(void);
/// Instead of end: forgets what was queued since the matching begin.
ONEHOP_API onehop_status_t onehop_group_call_drop(void);

// ---- Topology ----

/// Probes this machine. `*json` (docs/wire-formats.md) ends with a NUL; the caller gives it back with
/// onehop_free.
ONEHOP_API onehop_status_t onehop_topology_probe_json(char** json);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(modernize-use-using, modernize-redundant-void-arg)
