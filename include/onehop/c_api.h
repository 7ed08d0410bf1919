// SPDX-License-Identifier: Apache-2.0
// The C API of onehop, also for languages that call C.
//
// Rules for every function:
// - Functions that can fail return an onehop_status_t: ONEHOP_OK (0) or an error code. onehop_last_error and
//   onehop_last_error_rank return its message and rank, on the thread that made the call. Results are written
//   only on success. No exception crosses this interface.
// - A null pointer is ONEHOP_ERROR_INVALID_ARGUMENT, which names the parameter, unless the function allows
//   it.
// - The caller owns handles and releases them with their *_destroy function, which accepts NULL and never
//   fails. Handles may be destroyed in any order: objects that still need a store, group or buffer keep it
//   alive.
// - Handles are thread-safe except for their destruction, which must not overlap other calls on the same
//   handle.
// - Strings are NUL-terminated UTF-8; sizes are in bytes; times are in milliseconds. Every wait has a
//   deadline: ONEHOP_TIMEOUT_DEFAULT selects the group's timeout (30 s for stores and calls without a group).
//   Other negative values are invalid.
// - Structures begin with their size, so that later versions can extend them. Fill them with their *_init
//   function, then set fields (options) or pass them to a call (results). Strings and arrays in a result
//   belong to the handle that returned them and live as long as it does.
//
// The C++ headers document the behavior of the calls: store.h, group.h, buffer.h, pool.h, ipc.h,
// collectives.h. The following headers are parts of this one:
#pragma once

#include "onehop/c/base.h"           // errors, element types, reductions, byte strings
#include "onehop/c/call.h"           // collectives, send and receive
#include "onehop/c/device_memory.h"  // GPU memory for other processes: DeviceMemory, CUDA IPC
#include "onehop/c/peers.h"          // peer access between GPUs, and tests of it
#include "onehop/c/topology.h"       // devices, links, distances; what works on this machine
#include "onehop/c/tuning.h"         // tables that select the algorithm of collectives by size

// C requires typedef and (void).
// NOLINTBEGIN(modernize-use-using, modernize-redundant-void-arg)
#ifdef __cplusplus
extern "C" {
#endif

// ---- Stores: through which ranks find each other ----

typedef struct onehop_store onehop_store_t;

/// Creates an in-process store, for ranks that are threads of one process.
ONEHOP_API onehop_status_t onehop_store_memory(onehop_store_t** store);
/// Opens a store with one file per key in `directory`. The directory is created if missing and must belong to
/// the caller.
ONEHOP_API onehop_status_t onehop_store_file(const char* directory, onehop_store_t** store);
/// Creates a view of `store` that prepends `prefix` and a slash to every key.
ONEHOP_API onehop_status_t onehop_store_prefix(onehop_store_t* store, const char* prefix,
                                               onehop_store_t** prefixed);

typedef struct onehop_tcp_options_t {
  size_t size;
  const char* host;    ///< default "127.0.0.1"
  const char* secret;  ///< shared by server and clients; default none, which allows loopback only
  int64_t timeout_ms;  ///< timeout of a client's connection; operations have their own
  uint16_t port;       ///< default 0: a server selects a free port
} onehop_tcp_options_t;
/// `size` is sizeof(onehop_tcp_options_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_tcp_options_init(onehop_tcp_options_t* options, size_t size);
/// Connects a client and waits until the server is up.
ONEHOP_API onehop_status_t onehop_store_tcp(const onehop_tcp_options_t* options, onehop_store_t** store);

typedef struct onehop_tcp_server onehop_tcp_server_t;
ONEHOP_API onehop_status_t onehop_tcp_server_start(const onehop_tcp_options_t* options,
                                                   onehop_tcp_server_t** server);
/// 0 when `server` is NULL.
ONEHOP_API uint16_t onehop_tcp_server_port(const onehop_tcp_server_t* server);
/// Stops the server and destroys the handle.
ONEHOP_API void onehop_tcp_server_destroy(onehop_tcp_server_t* server);

/// Receives the value that a callback returns: the callback calls onehop_reply_set, which copies the value.
/// Valid only inside that callback.
typedef struct onehop_reply onehop_reply_t;
ONEHOP_API onehop_status_t onehop_reply_set(onehop_reply_t* reply, const void* value, size_t bytes);

/// Callbacks that implement a store. The five functions are required, receive `context` as their first
/// argument, return ONEHOP_OK or an error, and may be called from several threads at once. Each must end
/// within timeout_ms milliseconds, with ONEHOP_ERROR_TIMEOUT if necessary; 0 requests a single attempt.
typedef struct onehop_store_callbacks_t {
  size_t size;
  void* context;
  onehop_status_t (*set)(void* context, const char* key, const void* value, size_t bytes, int64_t timeout_ms);
  /// Waits for the key and replies with its value. Returns ONEHOP_ERROR_TIMEOUT if it does not appear in
  /// time.
  onehop_status_t (*get)(void* context, const char* key, int64_t timeout_ms, onehop_reply_t* value);
  onehop_status_t (*add)(void* context, const char* key, int64_t delta, int64_t timeout_ms, int64_t* result);
  /// Replies with the value that the key holds afterwards (see onehop_store_compare_set).
  onehop_status_t (*compare_set)(void* context, const char* key, const void* expected, size_t expected_bytes,
                                 const void* desired, size_t desired_bytes, int64_t timeout_ms,
                                 onehop_reply_t* value);
  onehop_status_t (*delete_key)(void* context, const char* key, int64_t timeout_ms, int* existed);
  /// Called once, when the store is no longer used, and also if its creation fails. Not called if the
  /// structure's size or unknown fields are rejected. May be NULL.
  void (*destroy)(void* context);
  const char* description;  ///< name of the store in messages; copied; default NULL: "callback store"
} onehop_store_callbacks_t;
/// Sets all other fields to NULL. `size` is sizeof(onehop_store_callbacks_t) as the caller was compiled. NULL
/// does nothing.
ONEHOP_API void onehop_store_callbacks_init(onehop_store_callbacks_t* callbacks, size_t size);
ONEHOP_API onehop_status_t onehop_store_callbacks(const onehop_store_callbacks_t* callbacks,
                                                  onehop_store_t** store);

ONEHOP_API void onehop_store_destroy(onehop_store_t* store);

/// Sets the key, or overwrites its value. `value` may be NULL if `bytes` is 0.
///
/// Every operation of a store ends within timeout_ms: it returns ONEHOP_ERROR_TIMEOUT if a lock or a server
/// delays it longer.
ONEHOP_API onehop_status_t onehop_store_set(onehop_store_t* store, const char* key, const void* value,
                                            size_t bytes, int64_t timeout_ms);
/// Waits until the key exists and returns its value. The caller releases `*value` with onehop_free; a NUL,
/// which `*bytes` does not count, follows it.
ONEHOP_API onehop_status_t onehop_store_get(onehop_store_t* store, const char* key, int64_t timeout_ms,
                                            char** value, size_t* bytes);
/// Waits until all `count` keys exist.
ONEHOP_API onehop_status_t onehop_store_wait(onehop_store_t* store, const char* const* keys, size_t count,
                                             int64_t timeout_ms);
/// Adds `delta` to a decimal counter (a missing key counts as 0). `result` receives the new value and may be
/// NULL.
ONEHOP_API onehop_status_t onehop_store_add(onehop_store_t* store, const char* key, int64_t delta,
                                            int64_t timeout_ms, int64_t* result);
/// Sets the key to `desired` if it holds `expected`; an empty `expected` also matches a missing key. `*value`
/// receives the value that the key holds afterwards; release it with onehop_free.
ONEHOP_API onehop_status_t onehop_store_compare_set(onehop_store_t* store, const char* key,
                                                    const void* expected, size_t expected_bytes,
                                                    const void* desired, size_t desired_bytes,
                                                    int64_t timeout_ms, char** value, size_t* bytes);
/// Deletes the key. `existed` receives 1 if the key existed, else 0; it may be NULL.
ONEHOP_API onehop_status_t onehop_store_delete(onehop_store_t* store, const char* key, int64_t timeout_ms,
                                               int* existed);
/// Describes the store for messages: "file store /tmp/x". Release `*description` with onehop_free.
ONEHOP_API onehop_status_t onehop_store_describe(const onehop_store_t* store, char** description);

/// Exchange among the ranks of one rendezvous, through a store. Every call is collective: all ranks make the
/// same calls in the same order. Not thread-safe. A rank whose arguments are rejected does not take part, and
/// the calls of the other ranks end with ONEHOP_ERROR_TIMEOUT, which names it.
typedef struct onehop_store_exchange onehop_store_exchange_t;
/// Creates this rank's handle of an exchange. Its keys begin with `prefix`, which must be unique to this
/// exchange.
ONEHOP_API onehop_status_t onehop_store_exchange_create(onehop_store_t* store, const char* prefix, int rank,
                                                        int world_size, onehop_store_exchange_t** exchange);
ONEHOP_API void onehop_store_exchange_destroy(onehop_store_exchange_t* exchange);
/// Returns the payloads of all ranks in rank order; they may differ in size. In this call and the next two,
/// ONEHOP_TIMEOUT_DEFAULT is 30 s.
ONEHOP_API onehop_status_t onehop_store_exchange_all_gather(onehop_store_exchange_t* exchange,
                                                            const void* payload, size_t bytes,
                                                            int64_t timeout_ms, onehop_payloads_t** payloads);
/// Returns the root's payload on every rank; release `*value` with onehop_free. The payloads of other ranks
/// are ignored.
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
  int local_rank;     ///< rank among those on this machine; usually the GPU to use
  char launcher[32];  ///< launcher whose variables were found: "onehop", "torchrun", "Open MPI", "Slurm"
} onehop_job_info_t;
/// `size` is sizeof(onehop_job_info_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_job_info_init(onehop_job_info_t* job, size_t size);
/// Reads the launcher's environment variables without joining a group. NOT_FOUND if no launcher's variables
/// are set; INVALID_ARGUMENT, which names the variable, if a value is invalid.
ONEHOP_API onehop_status_t onehop_job_from_env(onehop_job_info_t* job);
/// Opens the store through which onehop_group_from_env joins, for forming further groups: after a failure,
/// with the remaining ranks, or under other names. NOT_FOUND if no launcher's variables are set.
ONEHOP_API onehop_status_t onehop_store_from_env(int64_t timeout_ms, onehop_store_t** store);

// ---- Groups ----

/// The most GPU ranks and the most host ranks of a group.
enum { ONEHOP_MAX_DEVICES = 8, ONEHOP_MAX_HOST_RANKS = 64 };
/// Identifies this machine until it reboots: only ranks with equal ids can form a group. Lets a caller decide
/// before it joins. `*id` is NUL-terminated; the caller releases it with onehop_free. UNSUPPORTED if the
/// kernel does not tell.
ONEHOP_API onehop_status_t onehop_host_id(char** id);

typedef struct onehop_join_options_t {
  size_t size;
  const char* name;      ///< default "world"; groups that use one store at the same time need different names
  int64_t timeout_ms;    ///< for joining; also the default of the group's calls
  size_t scratch_bytes;  ///< size of each rank's staging buffer
  int rank;              ///< required by onehop_group_join
  int world_size;        ///< required by onehop_group_join
  int device;            ///< CUDA device ordinal; default ONEHOP_DEVICE_HOST
  int allow_overlapping_devices;  ///< default 0
  const char* tuning;  ///< file with a tuning table; rank 0's applies to all ranks; default: ONEHOP_TUNING
  int require_verified_peers;  ///< not 0: refuse GPUs that `onehop p2p-check` has not verified; default 0
  onehop_share_by_t share_by;  ///< GPUs: handle type of symmetric memory; default ONEHOP_SHARE_BY_AUTOMATIC
} onehop_join_options_t;
/// `size` is sizeof(onehop_join_options_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_join_options_init(onehop_join_options_t* options, size_t size);

/// Joins a group. Collective: either every rank gets a group, or every rank gets the same error.
ONEHOP_API onehop_status_t onehop_group_join(onehop_store_t* store, const onehop_join_options_t* options,
                                             onehop_group_t** group);
/// Joins with the rank, size and store that the environment of onehop launch, torchrun, mpirun or srun
/// provides. `options` may be NULL; its rank and world_size are ignored.
ONEHOP_API onehop_status_t onehop_group_from_env(const onehop_join_options_t* options,
                                                 onehop_group_t** group);
/// Creates all ranks of a group of this process's devices: groups[r] is rank r and uses devices[r]. Writes
/// `count` handles. `options` may be NULL; its rank, world_size and device are ignored. One thread may make
/// calls that only enqueue work for one rank after another. Calls that synchronize with the other ranks on
/// the host need one thread per rank: see onehop_groups_run.
ONEHOP_API onehop_status_t onehop_group_join_local(const int* devices, size_t count,
                                                   const onehop_join_options_t* options,
                                                   onehop_group_t** groups);
/// Runs `body` for each of `count` groups concurrently, each on its own thread, and waits for all. Returns
/// the first status that is not ONEHOP_OK, in the order of `groups`. The message is kept if that status came
/// from the last failed call of this library in that body.
ONEHOP_API onehop_status_t onehop_groups_run(onehop_group_t* const* groups, size_t count,
                                             onehop_status_t (*body)(onehop_group_t* group, void* context),
                                             void* context);
/// Leaves the group and destroys the handle.
ONEHOP_API void onehop_group_destroy(onehop_group_t* group);

/// -1 when `group` is NULL.
ONEHOP_API int onehop_group_rank(const onehop_group_t* group);
/// 0 when `group` is NULL.
ONEHOP_API int onehop_group_size(const onehop_group_t* group);
/// 32 hex digits, the same on all ranks; valid while the handle lives. "" when `group` is NULL.
ONEHOP_API const char* onehop_group_id(const onehop_group_t* group);
/// ONEHOP_DEVICE_HOST in a group of host ranks, and when `group` is NULL.
ONEHOP_API int onehop_group_device(const onehop_group_t* group);
/// The number of rank `rank` in the group that this one was made from by a split or by onehop_group_shrink. -1
/// after joining, and when there is no such rank or `group` is NULL.
ONEHOP_API int onehop_group_parent_rank(const onehop_group_t* group, int rank);
/// The group's name. Like the string of the next function, valid while the handle lives; "" when `group` is
/// NULL.
ONEHOP_API const char* onehop_group_name(const onehop_group_t* group);
/// The tuning file that the group follows, as named on rank 0; "" if none was named.
ONEHOP_API const char* onehop_group_tuning_file(const onehop_group_t* group);
/// The handle type with which the ranks share memory; ONEHOP_SHARE_BY_AUTOMATIC when `group` is NULL.
ONEHOP_API onehop_share_by_t onehop_group_share_by(const onehop_group_t* group);
/// The timeout that ONEHOP_TIMEOUT_DEFAULT selects in this group's calls; -1 when `group` is NULL.
ONEHOP_API int64_t onehop_group_timeout(const onehop_group_t* group);
/// Number of collectives of this rank by algorithm: counts[ONEHOP_ALGORITHM_*]. Counts completed ones on host
/// ranks and enqueued ones on GPUs (Group::usage in group.h). Writes `count` entries; entries beyond the
/// algorithms of this version are 0.
ONEHOP_API onehop_status_t onehop_group_usage(const onehop_group_t* group, uint64_t* counts, size_t count);

/// Waits until all ranks have called it. Collective.
ONEHOP_API onehop_status_t onehop_group_barrier(onehop_group_t* group, int64_t timeout_ms);
/// GPUs: waits until all work enqueued on `stream`, a cudaStream_t, has completed. Returns an error if a
/// collective of this group failed there. ONEHOP_ERROR_TIMEOUT if the stream has not completed in time; the
/// group then fails on all ranks, and onehop_last_error_rank is the rank that delays the stream. Host ranks:
/// equivalent to onehop_group_check.
ONEHOP_API onehop_status_t onehop_group_synchronize(onehop_group_t* group, void* stream, int64_t timeout_ms);
/// Returns the payloads of all ranks in rank order, at most 64 KiB each. Collective. Uses the group's
/// timeout.
ONEHOP_API onehop_status_t onehop_group_all_gather_bytes(onehop_group_t* group, const void* payload,
                                                         size_t bytes, onehop_payloads_t** payloads);
/// Splits the group: ranks with the same color form a new group, ordered by key, then by rank. A rank with a
/// negative color gets NULL. Collective.
ONEHOP_API onehop_status_t onehop_group_split(onehop_group_t* group, int color, int key,
                                              onehop_group_t** part);
/// Refuses a split that the other ranks make: onehop_refuse_call for onehop_group_split.
ONEHOP_API onehop_status_t onehop_refuse_split(onehop_group_t* group, onehop_status_t status,
                                               const char* message);
/// Forms a new group of the ranks that are left after a failure, in the same order (Group::shrink in group.h).
/// Every rank that is alive and has not left must call it. ONEHOP_ERROR_TIMEOUT names a rank that is alive but has
/// not called it; call it again to go on. The old group stays failed: destroy it.
ONEHOP_API onehop_status_t onehop_group_shrink(onehop_group_t* group, int64_t timeout_ms,
                                               onehop_group_t** survivors);
/// Returns ONEHOP_OK while the group is usable; otherwise the error that any call on it would return now.
ONEHOP_API onehop_status_t onehop_group_check(const onehop_group_t* group);
/// Makes every rank's current and later calls return ONEHOP_ERROR_ABORTED. Not collective. May be called from
/// any thread, even while another thread of this rank waits in a call. `reason` may be NULL. NULL `group`
/// does nothing.
ONEHOP_API void onehop_group_abort(onehop_group_t* group, const char* reason);
/// Has a thread of the process watch the group, for programs that replay graphs or wait for streams by other
/// means and so make no calls that could fail. When the group has failed, the thread logs the error at once. If
/// `grace_ms` later no call of this rank has returned the failure, and the rank has not left, the process ends
/// with exit code 1. Negative: it only logs. Repeated calls replace the grace.
ONEHOP_API onehop_status_t onehop_group_watch(onehop_group_t* group, int64_t grace_ms);
/// Returns the error with which the group has failed if no call of this rank has returned it yet, otherwise
/// ONEHOP_OK. Also after onehop_group_leave. Does not count as a call that returns it.
ONEHOP_API onehop_status_t onehop_group_unreported_failure(const onehop_group_t* group);
/// Leaves now: later calls return an error. The handle still needs onehop_group_destroy. NULL does nothing.
ONEHOP_API void onehop_group_leave(onehop_group_t* group);

// ---- Symmetric memory ----

typedef struct onehop_buffer onehop_buffer_t;

/// Allocates the same number of zeroed bytes on every rank, mapped by every rank. Collective.
ONEHOP_API onehop_status_t onehop_group_allocate(onehop_group_t* group, size_t bytes,
                                                 onehop_buffer_t** buffer);
/// Makes `bytes` bytes at `data` on this rank's GPU symmetric. Collective. The caller keeps the memory
/// allocated and frees it after all ranks have destroyed the buffer. MISMATCH if the sizes of the ranks
/// differ. INVALID_ARGUMENT on all ranks if the memory of one rank cannot be shared; UNSUPPORTED in a group
/// of host ranks.
ONEHOP_API onehop_status_t onehop_group_register_buffer(onehop_group_t* group, void* data, size_t bytes,
                                                        onehop_buffer_t** buffer);
typedef struct onehop_buffer_options_t {
  size_t size;
  int channels;  ///< signal channels, 1 to 4096; default 16
} onehop_buffer_options_t;
/// `size` is sizeof(onehop_buffer_options_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_buffer_options_init(onehop_buffer_options_t* options, size_t size);
/// The forms of the two functions above with options. MISMATCH if the options differ between ranks. `options`
/// may be NULL.
ONEHOP_API onehop_status_t onehop_group_allocate_with(onehop_group_t* group, size_t bytes,
                                                      const onehop_buffer_options_t* options,
                                                      onehop_buffer_t** buffer);
ONEHOP_API onehop_status_t onehop_group_register_buffer_with(onehop_group_t* group, void* data, size_t bytes,
                                                             const onehop_buffer_options_t* options,
                                                             onehop_buffer_t** buffer);
/// Refuses a registration that the other ranks make: onehop_refuse_call for onehop_group_register_buffer.
ONEHOP_API onehop_status_t onehop_refuse_registration(onehop_group_t* group, onehop_status_t status,
                                                      const char* message);
/// The same for onehop_group_allocate and what allocates by it, such as onehop_pool_create.
ONEHOP_API onehop_status_t onehop_refuse_allocation(onehop_group_t* group, onehop_status_t status,
                                                    const char* message);
/// Destroys the handle. Not collective.
ONEHOP_API void onehop_buffer_destroy(onehop_buffer_t* buffer);

/// This rank's part; NULL when `buffer` is NULL. Valid while this handle or a sub-buffer of it lives.
ONEHOP_API void* onehop_buffer_local(const onehop_buffer_t* buffer);
/// Usable bytes of each rank's part; 0 when `buffer` is NULL.
ONEHOP_API size_t onehop_buffer_bytes(const onehop_buffer_t* buffer);
/// This rank in the buffer's group; -1 when `buffer` is NULL.
ONEHOP_API int onehop_buffer_rank(const onehop_buffer_t* buffer);
/// Number of ranks of the buffer's group; 0 when `buffer` is NULL.
ONEHOP_API int onehop_buffer_world_size(const onehop_buffer_t* buffer);
/// Number of signal channels; 0 when `buffer` is NULL.
ONEHOP_API int onehop_buffer_channels(const onehop_buffer_t* buffer);
/// Returns the address of rank `rank`'s part in this rank's address space.
ONEHOP_API onehop_status_t onehop_buffer_peer(const onehop_buffer_t* buffer, int rank, void** peer);
/// Pointers through which a rank reaches its peers. peers[r] + offset is the address of rank r's part on this
/// rank.
typedef struct onehop_buffer_view_t {
  size_t size;
  int rank;
  int world_size;
  size_t bytes;                  ///< size of each rank's part
  size_t offset;                 ///< of a sub-buffer, in bytes; otherwise 0
  void* const* peers;            ///< `world_size` data pointers
  uint32_t* const* signal_pads;  ///< `world_size` pointers to signal pads (docs/memory-model.md)
  int channels;                  ///< number of signal channels
} onehop_buffer_view_t;
/// `size` is sizeof(onehop_buffer_view_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_buffer_view_init(onehop_buffer_view_t* view, size_t size);
/// Fills `view`, which is valid while the buffer lives.
ONEHOP_API onehop_status_t onehop_buffer_view(const onehop_buffer_t* buffer, onehop_buffer_view_t* view);
/// Writes the bytes of an onehop::DeviceView (onehop/device/view.h) to `view`, for kernels that take it by
/// value. `timeout_ms` applies to each wait of the kernel. `bytes` is the size of `view` and must be
/// onehop_device_view_bytes(); otherwise INVALID_ARGUMENT, because kernel and library are of different
/// versions. UNSUPPORTED for buffers of host ranks.
ONEHOP_API onehop_status_t onehop_buffer_device_view(const onehop_buffer_t* buffer, int64_t timeout_ms,
                                                     void* view, size_t bytes);
/// sizeof(onehop::DeviceView) in this version.
ONEHOP_API size_t onehop_device_view_bytes(void);
/// Creates a sub-buffer of `bytes` bytes at `offset` of every rank's part. It shares the signal channels. Not
/// collective.
ONEHOP_API onehop_status_t onehop_buffer_sub(const onehop_buffer_t* buffer, size_t offset, size_t bytes,
                                             onehop_buffer_t** part);
/// Waits until all ranks have called it. Everything that any rank wrote before the barrier is visible to all
/// ranks after it. Channels are 0 to onehop_buffer_channels - 1; two threads must not use the same channel at
/// the same time. ONEHOP_TIMEOUT_DEFAULT is 30 s here.
ONEHOP_API onehop_status_t onehop_buffer_barrier(const onehop_buffer_t* buffer, int channel,
                                                 int64_t timeout_ms);
/// Signals `rank` that everything this rank wrote before the call is ready.
ONEHOP_API onehop_status_t onehop_buffer_put_signal(const onehop_buffer_t* buffer, int rank, int channel);
/// Waits for the next signal from `rank`. ONEHOP_TIMEOUT_DEFAULT is 30 s here.
ONEHOP_API onehop_status_t onehop_buffer_wait_signal(const onehop_buffer_t* buffer, int rank, int channel,
                                                     int64_t timeout_ms);
/// The stream-ordered forms: each call enqueues the operation on `stream`, a cudaStream_t of this rank's GPU,
/// and returns at once. Their counts are independent of those above. If a wait fails, the group fails:
/// onehop_group_check and onehop_group_synchronize report why. UNSUPPORTED for buffers of host ranks.
ONEHOP_API onehop_status_t onehop_buffer_barrier_on_stream(const onehop_buffer_t* buffer, void* stream,
                                                           int channel, int64_t timeout_ms);
ONEHOP_API onehop_status_t onehop_buffer_put_signal_on_stream(const onehop_buffer_t* buffer, void* stream,
                                                              int rank, int channel);
ONEHOP_API onehop_status_t onehop_buffer_wait_signal_on_stream(const onehop_buffer_t* buffer, void* stream,
                                                               int rank, int channel, int64_t timeout_ms);

// ---- A pool of symmetric memory, for frameworks ----

typedef struct onehop_pool onehop_pool_t;

/// Creates a pool of `bytes` bytes on every rank. Collective. Ranks that make the same calls on it in the
/// same order get the same offsets, without synchronizing (pool.h).
ONEHOP_API onehop_status_t onehop_pool_create(onehop_group_t* group, size_t bytes, onehop_pool_t** pool);
/// Creates a pool in the memory of `buffer`, which the caller must not use otherwise. Not collective: every
/// rank creates a pool from its handle of the same buffer.
ONEHOP_API onehop_status_t onehop_pool_create_in(const onehop_buffer_t* buffer, onehop_pool_t** pool);
/// Destroys the handle. Not collective. onehop_pool_malloc no longer uses the pool; memory that it has
/// returned stays valid until it is freed.
ONEHOP_API void onehop_pool_destroy(onehop_pool_t* pool);
/// Returns a handle of all of the pool's memory, for peers' pointers, signals and barriers. Destroy it with
/// onehop_buffer_destroy.
ONEHOP_API onehop_status_t onehop_pool_buffer(const onehop_pool_t* pool, onehop_buffer_t** buffer);
/// Returns the byte offset of `data` from the beginning of the pool's memory.
ONEHOP_API onehop_status_t onehop_pool_offset(const onehop_pool_t* pool, const void* data, size_t* offset);
/// Allocates at least `bytes` bytes, aligned to 512 bytes and not zeroed. OUT_OF_RESOURCES names the
/// requested size and the free bytes. `stream`, a cudaStream_t or NULL, is ignored: see onehop_pool_malloc.
ONEHOP_API onehop_status_t onehop_pool_allocate(onehop_pool_t* pool, size_t bytes, void* stream, void** data);
/// Frees memory that onehop_pool_allocate returned.
ONEHOP_API onehop_status_t onehop_pool_deallocate(onehop_pool_t* pool, void* data, void* stream);
/// Total of free bytes, over all free ranges; 0 when `pool` is NULL.
ONEHOP_API size_t onehop_pool_free_bytes(const onehop_pool_t* pool);

/// Makes onehop_pool_malloc allocate from this pool for the device of the pool's group, in the whole process.
/// Replaces the previous pool of that device, so a process can use one rank per device.
ONEHOP_API onehop_status_t onehop_pool_use(onehop_pool_t* pool);
/// The allocation function for PyTorch's torch.cuda.memory.CUDAPluggableAllocator; onehop_pool_free is the
/// matching free function. Returns memory aligned to 512 bytes, or NULL if no pool is in use for `device` or
/// the pool is full: onehop_last_error tells which. `stream` is ignored: the framework orders the streams if
/// it frees memory on one stream and reuses it on another.
ONEHOP_API void* onehop_pool_malloc(size_t bytes, int device, void* stream);
/// Frees the memory in the pool that it came from, even if another pool is in use now. NULL does nothing.
ONEHOP_API void onehop_pool_free(void* data, size_t bytes, int device, void* stream);

// ---- Passing descriptors ----

/// Connected sockets between all ranks of one machine. All ranks make the calls in the same order. An invalid
/// argument is INVALID_ARGUMENT on all ranks. After all_gather and barrier the channel (and its group) stays
/// usable; after the other calls it has failed. An invalid argument of recv_fd affects only the caller.
typedef struct onehop_ipc_channel onehop_ipc_channel_t;

/// Connects `world_size` ranks through `store`; `prefix` must be unique to this channel.
/// ONEHOP_TIMEOUT_DEFAULT is 30 s in all calls of a channel.
ONEHOP_API onehop_status_t onehop_ipc_channel_connect(onehop_store_t* store, const char* prefix, int rank,
                                                      int world_size, int64_t timeout_ms,
                                                      onehop_ipc_channel_t** channel);
/// Returns a handle of the group's own channel; destroy it with onehop_ipc_channel_destroy. Its calls fail
/// once the group has left.
ONEHOP_API onehop_status_t onehop_group_channel(onehop_group_t* group, onehop_ipc_channel_t** channel);
ONEHOP_API void onehop_ipc_channel_destroy(onehop_ipc_channel_t* channel);
/// -1 when `channel` is NULL.
ONEHOP_API int onehop_ipc_channel_rank(const onehop_ipc_channel_t* channel);
/// Number of ranks; 0 when `channel` is NULL.
ONEHOP_API int onehop_ipc_channel_size(const onehop_ipc_channel_t* channel);
/// Sends one descriptor to rank `to`, which receives it with recv_fd. The caller keeps its own. -1 means
/// "none".
ONEHOP_API onehop_status_t onehop_ipc_channel_send_fd(onehop_ipc_channel_t* channel, int to, int fd,
                                                      int64_t timeout_ms);
/// Receives a descriptor from rank `from`. `*fd` is a new descriptor (close-on-exec) that the caller owns, or
/// -1 if the peer sent -1.
ONEHOP_API onehop_status_t onehop_ipc_channel_recv_fd(onehop_ipc_channel_t* channel, int from,
                                                      int64_t timeout_ms, int* fd);
/// Gathers the descriptors of all ranks in rank order: writes onehop_ipc_channel_size entries. The caller's
/// own entry is `fd`; all others are new descriptors that the caller owns.
ONEHOP_API onehop_status_t onehop_ipc_channel_all_gather_fds(onehop_ipc_channel_t* channel, int fd,
                                                             int64_t timeout_ms, int* fds);
/// Broadcasts the root's descriptor to every rank; the root gets its own back. -1 may be broadcast and means
/// "none".
ONEHOP_API onehop_status_t onehop_ipc_channel_broadcast_fd(onehop_ipc_channel_t* channel, int fd, int root,
                                                           int64_t timeout_ms, int* received);
/// Returns the payloads of all ranks in rank order, at most 64 KiB each.
ONEHOP_API onehop_status_t onehop_ipc_channel_all_gather(onehop_ipc_channel_t* channel, const void* payload,
                                                         size_t bytes, int64_t timeout_ms,
                                                         onehop_payloads_t** payloads);
ONEHOP_API onehop_status_t onehop_ipc_channel_barrier(onehop_ipc_channel_t* channel, int64_t timeout_ms);

// ---- Topology ----

/// Probes this machine. `*json` (docs/wire-formats.md) is NUL-terminated; the caller releases it with
/// onehop_free.
ONEHOP_API onehop_status_t onehop_topology_probe_json(char** json);

// ---- The communicator of PyTorch's intra-node code (onehop/intra_node_comm.h) ----

typedef struct onehop_intra_node_comm onehop_intra_node_comm_t;

/// `*enabled` is 1 if ENABLE_INTRA_NODE_COMM is on, else 0. INVALID_ARGUMENT if its value is not a flag.
ONEHOP_API onehop_status_t onehop_intra_node_comm_is_enabled(int* enabled);

typedef struct onehop_intra_node_options_t {
  size_t size;
  size_t buffer_bytes;        ///< default 10 MiB; the same on all ranks
  int64_t timeout_ms;         ///< for rendezvous and for each all-reduce
  const char* name;           ///< default "world"; unique among communicators on one store at the same time
  const char* topology_json;  ///< for tests: topology to assume instead of querying the driver; default none
  int device;                 ///< CUDA device ordinal; default ONEHOP_DEVICE_HOST
  int allow_overlapping_devices;  ///< default 0
} onehop_intra_node_options_t;
/// `size` is sizeof(onehop_intra_node_options_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_intra_node_options_init(onehop_intra_node_options_t* options, size_t size);

/// Creates this rank's handle without communicating. `options` may be NULL.
ONEHOP_API onehop_status_t onehop_intra_node_comm_create(onehop_store_t* store, int rank, int world_size,
                                                         const onehop_intra_node_options_t* options,
                                                         onehop_intra_node_comm_t** comm);
/// Leaves the communicator and destroys the handle.
ONEHOP_API void onehop_intra_node_comm_destroy(onehop_intra_node_comm_t* comm);

/// Forms the communicator. Collective. `*formed` is 1 once it is usable. It is 0, with the same reason on all
/// ranks, if the ranks must not form one: not enabled, too few or too many ranks, several hosts, a shared or
/// old GPU, or GPUs not fully connected by NVLink. Errors report actual failures only, such as a rank that
/// did not arrive.
ONEHOP_API onehop_status_t onehop_intra_node_comm_rendezvous(onehop_intra_node_comm_t* comm, int* formed);
/// The reason why the last rendezvous set `*formed` to 0, else ""; valid until the next one. "" when `comm`
/// is NULL.
ONEHOP_API const char* onehop_intra_node_comm_reason(const onehop_intra_node_comm_t* comm);

/// Returns the algorithm that PyTorch's implementation would use for a sum in place: one-shot to 256 KiB and
/// two-shot to 10 MiB, within the buffer, for f32 and bf16, with address and bytes multiples of 4. Otherwise
/// ONEHOP_ALGORITHM_NONE, also for unknown types and NULL `comm`.
ONEHOP_API onehop_algorithm_t onehop_intra_node_comm_select(const onehop_intra_node_comm_t* comm,
                                                            const void* data, size_t count,
                                                            onehop_dtype_t dtype);
/// Sums in place with the given algorithm. Collective. INVALID_ARGUMENT for ONEHOP_ALGORITHM_NONE, and for
/// memory that is not on the communicator's GPU. `stream` is a cudaStream_t or NULL; host ranks ignore it.
ONEHOP_API onehop_status_t onehop_intra_node_comm_all_reduce(onehop_intra_node_comm_t* comm, void* data,
                                                             size_t count, onehop_dtype_t dtype,
                                                             onehop_algorithm_t algorithm, void* stream);
/// GPUs: waits until all work enqueued on `stream` has completed, at most for the timeout_ms of the options.
ONEHOP_API onehop_status_t onehop_intra_node_comm_synchronize(onehop_intra_node_comm_t* comm, void* stream);
/// Number of all-reduces of this communicator with this algorithm.
ONEHOP_API onehop_status_t onehop_intra_node_comm_usage(const onehop_intra_node_comm_t* comm,
                                                        onehop_algorithm_t algorithm, uint64_t* count);
/// Number of all-reduces of all communicators of this process.
ONEHOP_API uint64_t onehop_intra_node_comm_total_usage(void);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(modernize-use-using, modernize-redundant-void-arg)
