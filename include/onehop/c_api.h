// SPDX-License-Identifier: Apache-2.0
// onehop for C and for languages that call C.
//
// Rules that hold for every function:
// - Functions that can fail return an onehop_status_t: ONEHOP_OK (0), or an error whose message and rank
//   onehop_last_error and onehop_last_error_rank give, on the thread that made the call. Results are written
//   only on success. Nothing is ever thrown across this interface.
// - A null pointer where none is allowed is ONEHOP_ERROR_INVALID_ARGUMENT that names the parameter.
// - Handles are owned by the caller and given back with their *_destroy function, which accepts NULL, never
//   fails and may be called in any order: what still needs a store, group or buffer keeps it alive itself.
// - Handles are thread-safe except for their destruction, which must not overlap other calls on the same
//   handle.
// - Strings are UTF-8 and end with a NUL; sizes are bytes; times are milliseconds. Every wait has a deadline:
//   ONEHOP_TIMEOUT_DEFAULT picks the group's (stores and calls without a group: 30 s), other negative values
//   are invalid.
// - Structures begin with their size, so that they can grow: fill them with their *_init function, then set
//   fields (options), or let a call fill them (results). Strings and arrays in a result belong to the handle
//   that it came from, and live as long.
//
// What the calls do is described once, in the C++ header of the same subject: store.h, group.h, buffer.h,
// pool.h, ipc.h, collectives.h. These headers are parts of this one:
#pragma once

#include "onehop/c/base.h"           // errors, element types, reductions, byte strings
#include "onehop/c/device_memory.h"  // memory of GPUs for other processes: DeviceMemory, CUDA IPC
#include "onehop/c/peers.h"          // which GPU reaches which, and proof of it
#include "onehop/c/topology.h"       // devices, links, distances; what works on this machine
#include "onehop/c/tuning.h"         // tables that say how collectives go, by size

// C has no other way to say these things.
// NOLINTBEGIN(modernize-use-using, modernize-redundant-void-arg)
#ifdef __cplusplus
extern "C" {
#endif

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

/// How a callback hands back a value: it calls onehop_reply_set, which copies. Valid inside that
/// callback only.
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
  /// Called once, when nothing uses the store any more; also when creating it fails, but for a structure whose
  /// size or unknown fields are refused. May be NULL.
  void (*destroy)(void* context);
  const char* description;  ///< for messages, and copied; default NULL: "callback store"
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
/// What it is, for messages: "file store /tmp/x". Given back with onehop_free.
ONEHOP_API onehop_status_t onehop_store_describe(const onehop_store_t* store, char** description);

/// Exchange among the ranks of one rendezvous, through a store. Every call is collective: all ranks make the
/// same calls in the same order. Not thread-safe. A rank that refuses its arguments does not take part, and
/// the others' calls end with ONEHOP_ERROR_TIMEOUT that names it.
typedef struct onehop_store_exchange onehop_store_exchange_t;
/// Keys begin with `prefix`, which must be unique to this exchange.
ONEHOP_API onehop_status_t onehop_store_exchange_create(onehop_store_t* store, const char* prefix, int rank,
                                                        int world_size, onehop_store_exchange_t** exchange);
ONEHOP_API void onehop_store_exchange_destroy(onehop_store_exchange_t* exchange);
/// Everyone's payload in rank order; they may differ in size. ONEHOP_TIMEOUT_DEFAULT is 30 s in these three.
ONEHOP_API onehop_status_t onehop_store_exchange_all_gather(onehop_store_exchange_t* exchange,
                                                            const void* payload, size_t bytes,
                                                            int64_t timeout_ms, onehop_payloads_t** payloads);
/// Root's payload, on every rank, handed out as by onehop_store_get. Other ranks' payloads are not looked at.
ONEHOP_API onehop_status_t onehop_store_exchange_broadcast(onehop_store_exchange_t* exchange,
                                                           const void* payload, size_t bytes, int root,
                                                           int64_t timeout_ms, char** value,
                                                           size_t* value_bytes);
ONEHOP_API onehop_status_t onehop_store_exchange_barrier(onehop_store_exchange_t* exchange,
                                                         int64_t timeout_ms);

// ---- The job that a launcher started this process in ----

typedef struct onehop_job_info_t {
  size_t size;
  int rank;
  int world_size;
  int local_rank;     ///< usually the GPU to use
  char launcher[32];  ///< whose variables were found: "onehop", "torchrun", "Open MPI", "Slurm"
} onehop_job_info_t;
/// `size` is sizeof(onehop_job_info_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_job_info_init(onehop_job_info_t* job, size_t size);
/// What the environment says, without joining anything. NOT_FOUND when no launcher's variables are set;
/// INVALID_ARGUMENT names a variable that makes no sense.
ONEHOP_API onehop_status_t onehop_job_from_env(onehop_job_info_t* job);
/// The store of onehop_group_from_env, for joining further groups: after a failure, with the ranks that are
/// left, or under other names. NOT_FOUND when no launcher's variables are set.
ONEHOP_API onehop_status_t onehop_store_from_env(int64_t timeout_ms, onehop_store_t** store);

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
  size_t copy_scratch_bytes;   ///< GPUs: memory for copy engines, which carry long messages; default 0: none
  int require_verified_peers;  ///< not 0: refuse GPUs that `onehop p2p-check` has not verified; default 0
  onehop_share_by_t share_by;  ///< GPUs: how symmetric memory travels; default ONEHOP_SHARE_BY_AUTOMATIC
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
/// All ranks of a group of this process's devices: groups[r] is rank r, and drives devices[r]. Writes `count`
/// handles. `options` may be NULL; its rank, world_size and device are ignored. One thread may make the calls
/// that only queue work for one rank after another; calls in which ranks wait for each other on the host need
/// a thread per rank: onehop_groups_run.
ONEHOP_API onehop_status_t onehop_group_join_local(const int* devices, size_t count,
                                                   const onehop_join_options_t* options,
                                                   onehop_group_t** groups);
/// Runs `body` for each of `count` groups at the same time, each on a thread of its own, and waits for all.
/// Returns the first status, in the order of `groups`, that is not ONEHOP_OK: with its message when it is that
/// of the last call of this library that failed in that body.
ONEHOP_API onehop_status_t onehop_groups_run(onehop_group_t* const* groups, size_t count,
                                             onehop_status_t (*body)(onehop_group_t* group, void* context),
                                             void* context);
/// Leaves the group.
ONEHOP_API void onehop_group_destroy(onehop_group_t* group);

/// -1 when `group` is NULL.
ONEHOP_API int onehop_group_rank(const onehop_group_t* group);
/// 0 when `group` is NULL.
ONEHOP_API int onehop_group_size(const onehop_group_t* group);
/// 32 hex digits, the same on all ranks; valid while the handle lives. "" when `group` is NULL.
ONEHOP_API const char* onehop_group_id(const onehop_group_t* group);
/// ONEHOP_DEVICE_HOST in a group of host ranks, and when `group` is NULL.
ONEHOP_API int onehop_group_device(const onehop_group_t* group);
/// These two are valid while the handle lives; "" when `group` is NULL.
ONEHOP_API const char* onehop_group_name(const onehop_group_t* group);
/// The file whose tuning table the group follows, as rank 0 was told; "": none was named.
ONEHOP_API const char* onehop_group_tuning_file(const onehop_group_t* group);
/// How the group shares memory, as all ranks decided; ONEHOP_SHARE_BY_AUTOMATIC when `group` is NULL.
ONEHOP_API onehop_share_by_t onehop_group_share_by(const onehop_group_t* group);
/// What ONEHOP_TIMEOUT_DEFAULT means in this group's calls; -1 when `group` is NULL.
ONEHOP_API int64_t onehop_group_timeout(const onehop_group_t* group);
/// Collectives of this rank by algorithm: counts[ONEHOP_ALGORITHM_*]. Of host ranks completed ones, on GPUs
/// queued ones (Group::usage in group.h). Writes `count` entries; those beyond the algorithms that this version
/// knows are 0.
ONEHOP_API onehop_status_t onehop_group_usage(const onehop_group_t* group, uint64_t* counts, size_t count);

/// Collective: all ranks arrive.
ONEHOP_API onehop_status_t onehop_group_barrier(onehop_group_t* group, int64_t timeout_ms);
/// GPUs: waits until everything queued on `stream`, a cudaStream_t, has ended; an error when a collective of
/// this group failed there. ONEHOP_ERROR_TIMEOUT when the stream was not done in time, which fails the group on
/// all ranks; onehop_last_error_rank is the rank that holds the stream up. Host ranks: onehop_group_check.
ONEHOP_API onehop_status_t onehop_group_synchronize(onehop_group_t* group, void* stream, int64_t timeout_ms);
/// Collective: everyone's bytes in rank order, at most 64 KiB each. Takes the group's timeout.
ONEHOP_API onehop_status_t onehop_group_all_gather_bytes(onehop_group_t* group, const void* payload,
                                                         size_t bytes, onehop_payloads_t** payloads);
/// Collective. Ranks of one colour form a new group, ordered by key, then by rank. A negative colour
/// gets NULL.
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
/// Of the buffer's group; -1 when `buffer` is NULL.
ONEHOP_API int onehop_buffer_rank(const onehop_buffer_t* buffer);
/// Ranks of the buffer's group; 0 when `buffer` is NULL.
ONEHOP_API int onehop_buffer_world_size(const onehop_buffer_t* buffer);
/// Channels of signals; 0 when `buffer` is NULL.
ONEHOP_API int onehop_buffer_channels(const onehop_buffer_t* buffer);
/// Rank `rank`'s part in this rank's address space.
ONEHOP_API onehop_status_t onehop_buffer_peer(const onehop_buffer_t* buffer, int rank, void** peer);
/// All that a rank needs to reach its peers. peers[r] + offset is rank r's part as this rank sees it.
typedef struct onehop_buffer_view_t {
  size_t size;
  int rank;
  int world_size;
  size_t bytes;                  ///< of each rank's part
  size_t offset;                 ///< not 0 for sub-buffers
  void* const* peers;            ///< `world_size` data pointers
  uint32_t* const* signal_pads;  ///< `world_size` pointers to signal pads (docs/memory-model.md)
  int channels;                  ///< of signals
} onehop_buffer_view_t;
/// `size` is sizeof(onehop_buffer_view_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_buffer_view_init(onehop_buffer_view_t* view, size_t size);
/// Valid while the buffer lives.
ONEHOP_API onehop_status_t onehop_buffer_view(const onehop_buffer_t* buffer, onehop_buffer_view_t* view);
/// For kernels that take an onehop::DeviceView (onehop/device/view.h) by value: writes one to `view`, as plain
/// bytes. `timeout_ms` is for each of the kernel's waits. `bytes` is the size of `view`, and must be
/// onehop_device_view_bytes(): INVALID_ARGUMENT, since kernel and library are of different versions then.
/// UNSUPPORTED for buffers of host ranks.
ONEHOP_API onehop_status_t onehop_buffer_device_view(const onehop_buffer_t* buffer, int64_t timeout_ms,
                                                     void* view, size_t bytes);
/// sizeof(onehop::DeviceView) in this version.
ONEHOP_API size_t onehop_device_view_bytes(void);
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
/// The same on `stream`, a cudaStream_t of this rank's GPU: queued, not waited for. They count apart from
/// those above. A wait that fails ends the group: onehop_group_check and onehop_group_synchronize say why.
/// UNSUPPORTED for buffers of host ranks.
ONEHOP_API onehop_status_t onehop_buffer_barrier_on_stream(const onehop_buffer_t* buffer, void* stream,
                                                           int channel, int64_t timeout_ms);
ONEHOP_API onehop_status_t onehop_buffer_put_signal_on_stream(const onehop_buffer_t* buffer, void* stream,
                                                              int rank, int channel);
ONEHOP_API onehop_status_t onehop_buffer_wait_signal_on_stream(const onehop_buffer_t* buffer, void* stream,
                                                               int rank, int channel, int64_t timeout_ms);

// ---- A pool of symmetric memory, for frameworks ----

typedef struct onehop_pool onehop_pool_t;

/// Collective: a pool of `bytes` bytes on every rank. Ranks that make the same calls on it in the same order
/// get the same offsets, without meeting (pool.h).
ONEHOP_API onehop_status_t onehop_pool_create(onehop_group_t* group, size_t bytes, onehop_pool_t** pool);
/// A pool of the memory of `buffer`, which is the pool's alone from here on. Not collective: every rank makes
/// one of its handle of the same buffer.
ONEHOP_API onehop_status_t onehop_pool_create_in(const onehop_buffer_t* buffer, onehop_pool_t** pool);
/// Not collective. Ends its use by onehop_pool_malloc; what that handed out stays until it is freed.
ONEHOP_API void onehop_pool_destroy(onehop_pool_t* pool);
/// A handle of all of its memory, to be destroyed: for peers' pointers, signals and barriers.
ONEHOP_API onehop_status_t onehop_pool_buffer(const onehop_pool_t* pool, onehop_buffer_t** buffer);
/// How far `data` is from the beginning of the pool's memory.
ONEHOP_API onehop_status_t onehop_pool_offset(const onehop_pool_t* pool, const void* data, size_t* offset);
/// At least `bytes` bytes, aligned to 512, not zeroed. OUT_OF_RESOURCES names what was asked for and what is
/// free. `stream`, a cudaStream_t or NULL, is not looked at: see onehop_pool_malloc.
ONEHOP_API onehop_status_t onehop_pool_allocate(onehop_pool_t* pool, size_t bytes, void* stream, void** data);
/// Gives back what onehop_pool_allocate gave out.
ONEHOP_API onehop_status_t onehop_pool_deallocate(onehop_pool_t* pool, void* data, void* stream);
/// Bytes that are not handed out, in however many pieces; 0 when `pool` is NULL.
ONEHOP_API size_t onehop_pool_free_bytes(const onehop_pool_t* pool);

/// From here on onehop_pool_malloc takes memory of the device of the pool's group from this pool, in the
/// whole process: one rank per device and process can do so. Replaces the pool that did so before.
ONEHOP_API onehop_status_t onehop_pool_use(onehop_pool_t* pool);
/// These two are what PyTorch's torch.cuda.memory.CUDAPluggableAllocator calls. NULL when no pool is used for
/// `device` or when it has no room: onehop_last_error says which. Aligned to 512 bytes. `stream` is not
/// looked at: the framework orders work on memory that it frees on one stream and uses again on another.
ONEHOP_API void* onehop_pool_malloc(size_t bytes, int device, void* stream);
/// Gives it back to the pool that it came from, whichever is in use now. NULL does nothing.
ONEHOP_API void onehop_pool_free(void* data, size_t bytes, int device, void* stream);

// ---- Passing descriptors ----

/// Connected sockets between all ranks of one machine. Calls are collective and made in the same order by all
/// ranks. Unusable arguments are INVALID_ARGUMENT on all ranks; all_gather and barrier leave the channel (and
/// its group) usable then, the other calls end it. recv_fd alone concerns nobody else.
typedef struct onehop_ipc_channel onehop_ipc_channel_t;

/// Connects `world_size` ranks through `store`; `prefix` must be unique to this channel. ONEHOP_TIMEOUT_DEFAULT
/// is 30 s in all calls of a channel.
ONEHOP_API onehop_status_t onehop_ipc_channel_connect(onehop_store_t* store, const char* prefix, int rank,
                                                      int world_size, int64_t timeout_ms,
                                                      onehop_ipc_channel_t** channel);
/// The group's own, to be destroyed; its calls fail once the group has left.
ONEHOP_API onehop_status_t onehop_group_channel(onehop_group_t* group, onehop_ipc_channel_t** channel);
ONEHOP_API void onehop_ipc_channel_destroy(onehop_ipc_channel_t* channel);
/// -1 when `channel` is NULL.
ONEHOP_API int onehop_ipc_channel_rank(const onehop_ipc_channel_t* channel);
/// Ranks; 0 when `channel` is NULL.
ONEHOP_API int onehop_ipc_channel_size(const onehop_ipc_channel_t* channel);
/// Sends one descriptor to rank `to`, which takes it with recv_fd; the caller keeps its own. -1 means "none".
ONEHOP_API onehop_status_t onehop_ipc_channel_send_fd(onehop_ipc_channel_t* channel, int to, int fd,
                                                      int64_t timeout_ms);
/// `*fd` is a new descriptor (close-on-exec) that the caller owns; -1 when the peer sent -1.
ONEHOP_API onehop_status_t onehop_ipc_channel_recv_fd(onehop_ipc_channel_t* channel, int from,
                                                      int64_t timeout_ms, int* fd);
/// Everyone's descriptor in rank order: writes onehop_ipc_channel_size entries. The caller's own entry is `fd`;
/// all others are new and owned by the caller.
ONEHOP_API onehop_status_t onehop_ipc_channel_all_gather_fds(onehop_ipc_channel_t* channel, int fd,
                                                             int64_t timeout_ms, int* fds);
/// Root's descriptor on every rank; root gets its own back. -1 may be broadcast and means "none".
ONEHOP_API onehop_status_t onehop_ipc_channel_broadcast_fd(onehop_ipc_channel_t* channel, int fd, int root,
                                                           int64_t timeout_ms, int* received);
/// Everyone's bytes in rank order, at most 64 KiB each.
ONEHOP_API onehop_status_t onehop_ipc_channel_all_gather(onehop_ipc_channel_t* channel, const void* payload,
                                                         size_t bytes, int64_t timeout_ms,
                                                         onehop_payloads_t** payloads);
ONEHOP_API onehop_status_t onehop_ipc_channel_barrier(onehop_ipc_channel_t* channel, int64_t timeout_ms);

// ---- Collectives ----

typedef int onehop_algorithm_t;
enum {
  ONEHOP_ALGORITHM_AUTO = -1,  ///< the group's policy picks
  ONEHOP_ALGORITHM_NONE = 0,  ///< reported when the legacy policy declined, and by calls that are only queued
  ONEHOP_ALGORITHM_ONE_SHOT = 1,
  ONEHOP_ALGORITHM_TWO_SHOT = 2
};

/// "one-shot"; "unknown" for a number that is none. A constant; never NULL.
ONEHOP_API const char* onehop_algorithm_name(onehop_algorithm_t algorithm);
/// Knows "one-shot" and "two-shot". INVALID_ARGUMENT lists them.
ONEHOP_API onehop_status_t onehop_algorithm_parse(const char* name, onehop_algorithm_t* algorithm);

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

// ---- The communicator of PyTorch's intra-node code (onehop/intra_node_comm.h) ----

typedef struct onehop_intra_node_comm onehop_intra_node_comm_t;

/// `*enabled` is 1 where ENABLE_INTRA_NODE_COMM is on, else 0. INVALID_ARGUMENT when its value is no flag.
ONEHOP_API onehop_status_t onehop_intra_node_comm_is_enabled(int* enabled);

typedef struct onehop_intra_node_options_t {
  size_t size;
  size_t buffer_bytes;        ///< default 10 MiB; the same on all ranks
  int64_t timeout_ms;         ///< for rendezvous, and for each all-reduce
  const char* name;           ///< default "world"; those on one store at the same time need different names
  const char* topology_json;  ///< for tests: believed instead of asking the driver; default none
  int device;                 ///< CUDA device ordinal; default ONEHOP_DEVICE_HOST
  int allow_overlapping_devices;  ///< default 0
} onehop_intra_node_options_t;
/// `size` is sizeof(onehop_intra_node_options_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_intra_node_options_init(onehop_intra_node_options_t* options, size_t size);

/// Talks to nobody yet. `options` may be NULL.
ONEHOP_API onehop_status_t onehop_intra_node_comm_create(onehop_store_t* store, int rank, int world_size,
                                                         const onehop_intra_node_options_t* options,
                                                         onehop_intra_node_comm_t** comm);
/// Leaves.
ONEHOP_API void onehop_intra_node_comm_destroy(onehop_intra_node_comm_t* comm);

/// Collective. `*formed` is 1 once it is usable, and 0, for one reason on all ranks, where there must be
/// none: not enabled, too few or many ranks, several hosts, a shared or old GPU, GPUs not fully connected by
/// NVLink. Errors are real failures only, such as a rank that did not come.
ONEHOP_API onehop_status_t onehop_intra_node_comm_rendezvous(onehop_intra_node_comm_t* comm, int* formed);
/// Why the last rendezvous said 0, else ""; valid until the next one. "" when `comm` is NULL.
ONEHOP_API const char* onehop_intra_node_comm_reason(const onehop_intra_node_comm_t* comm);

/// What the original would use for a sum in place: one-shot to 256 KiB, two-shot to 10 MiB, within the
/// buffer, of f32 and bf16, address and bytes multiples of 4; ONEHOP_ALGORITHM_NONE for anything else, also
/// unknown types and NULL `comm`.
ONEHOP_API onehop_algorithm_t onehop_intra_node_comm_select(const onehop_intra_node_comm_t* comm,
                                                            const void* data, size_t count,
                                                            onehop_dtype_t dtype);
/// Collective: sums in place with this algorithm. INVALID_ARGUMENT for ONEHOP_ALGORITHM_NONE, and for memory
/// that is not of the communicator's GPU. `stream` is a cudaStream_t or NULL; host ranks ignore it.
ONEHOP_API onehop_status_t onehop_intra_node_comm_all_reduce(onehop_intra_node_comm_t* comm, void* data,
                                                             size_t count, onehop_dtype_t dtype,
                                                             onehop_algorithm_t algorithm, void* stream);
/// GPUs: waits until everything queued on `stream` has ended, at most timeout_ms of the options.
ONEHOP_API onehop_status_t onehop_intra_node_comm_synchronize(onehop_intra_node_comm_t* comm, void* stream);
/// All-reduces of this communicator with this algorithm, and of all communicators of this process.
ONEHOP_API onehop_status_t onehop_intra_node_comm_usage(const onehop_intra_node_comm_t* comm,
                                                        onehop_algorithm_t algorithm, uint64_t* count);
ONEHOP_API uint64_t onehop_intra_node_comm_total_usage(void);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(modernize-use-using, modernize-redundant-void-arg)
