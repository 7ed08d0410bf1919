// SPDX-License-Identifier: Apache-2.0
// onehop for C: peer access between GPUs, and tests that data arrives. Part of c_api.h; peer_access.h and
// peer_check.h describe the calls, which return ONEHOP_ERROR_UNSUPPORTED if there is no GPU.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "onehop/c/base.h"

// C requires typedef and (void).
// NOLINTBEGIN(modernize-use-using, modernize-redundant-void-arg)
#ifdef __cplusplus
extern "C" {
#endif

// ---- Peer access ----

/// A cache over ordered pairs of devices. Access has a direction: `device` reads and writes memory on `peer`.
typedef struct onehop_peer_access onehop_peer_access_t;

/// Returns a handle of the cache that the whole process shares, over all its devices. Access is enabled per
/// process, so use this one except in tests. Destroying the handle does not affect the process's cache.
ONEHOP_API onehop_status_t onehop_peer_access_of_process(onehop_peer_access_t** access);
/// Creates a separate cache over devices 0 to `device_count` - 1.
ONEHOP_API onehop_status_t onehop_peer_access_create(int device_count, onehop_peer_access_t** access);
/// Destroys the handle. Enabled access remains.
ONEHOP_API void onehop_peer_access_destroy(onehop_peer_access_t* access);

/// `*yes` is 1 if `device` can access memory on `peer`; the access is then enabled as a side effect.
/// OUT_OF_RESOURCES if `device` has already enabled as many peers as CUDA allows (8).
ONEHOP_API onehop_status_t onehop_peer_access_can_access(onehop_peer_access_t* access, int device, int peer,
                                                         int* yes);
/// Disables access that onehop_peer_access_can_access enabled. First wait for work that uses it. UNSUPPORTED
/// if the driver lacks the function.
ONEHOP_API onehop_status_t onehop_peer_access_disable(onehop_peer_access_t* access, int device, int peer);
/// Grants `peer` access to memory that cudaMallocAsync allocates on `owner` from the current pool of that
/// device.
ONEHOP_API onehop_status_t onehop_peer_access_grant_current_pool(onehop_peer_access_t* access, int owner,
                                                                 int peer);
/// Grants `peer` access to the memory of `pool`, a cudaMemPool_t (CUmemoryPool).
ONEHOP_API onehop_status_t onehop_peer_access_grant_pool(onehop_peer_access_t* access, void* pool, int peer);

/// What the driver reports about one device's access to another's memory.
typedef struct onehop_pair_attributes_t {
  size_t size;
  int access;            ///< 1: loads, stores and copies
  int performance_rank;  ///< CUDA's P2P performance rank; lower is better; -1: unknown
  int native_atomics;    ///< 1: atomics on the peer's memory are atomic for both devices
  int array_access;      ///< 1: access to CUDA arrays (textures and surfaces)
} onehop_pair_attributes_t;
/// `size` is sizeof(onehop_pair_attributes_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_pair_attributes_init(onehop_pair_attributes_t* attributes, size_t size);
/// Queries the driver on every call and enables nothing.
ONEHOP_API onehop_status_t onehop_peer_access_pair_attributes(const onehop_peer_access_t* access, int device,
                                                              int peer, onehop_pair_attributes_t* attributes);

/// Clears the cache and starts over with devices 0 to `device_count` - 1. Required after cudaDeviceReset.
ONEHOP_API onehop_status_t onehop_peer_access_reset(onehop_peer_access_t* access, int device_count);
ONEHOP_API onehop_status_t onehop_peer_access_device_count(const onehop_peer_access_t* access,
                                                           int* device_count);

// ---- Tests that GPUs can access each other's memory ----

typedef int onehop_peer_test_t;
enum {
  ONEHOP_PEER_TEST_STORE = 0,           ///< a kernel on `from` writes into memory on `to`
  ONEHOP_PEER_TEST_LOAD = 1,            ///< a kernel on `from` reads memory on `to`
  ONEHOP_PEER_TEST_COPY = 2,            ///< a copy engine moves memory of `from` to `to`
  ONEHOP_PEER_TEST_ATOMICS = 3,         ///< a kernel on `from` adds to words on `to`
  ONEHOP_PEER_TEST_SHARED_ATOMICS = 4,  ///< kernels on both add to the same words on `to` at the same time
  ONEHOP_PEER_TEST_FLAG = 5             ///< kernels on both devices answer each other's flags, many times
};
typedef int onehop_peer_outcome_t;
enum {
  ONEHOP_PEER_OUTCOME_PASSED = 0,
  ONEHOP_PEER_OUTCOME_FAILED = 1,   ///< wrong data, or the driver reported an error
  ONEHOP_PEER_OUTCOME_HUNG = 2,     ///< no result in time; this process must not use the devices any more
  ONEHOP_PEER_OUTCOME_SKIPPED = 3,  ///< these devices do not support it
  ONEHOP_PEER_OUTCOME_NOT_RUN = 4   ///< an earlier test made it pointless
};
/// Names such as "shared-atomics" and "passed"; "unknown" for an unknown number. Constants; never NULL.
ONEHOP_API const char* onehop_peer_test_name(onehop_peer_test_t test);
ONEHOP_API const char* onehop_peer_outcome_name(onehop_peer_outcome_t outcome);

typedef struct onehop_peer_check_options_t {
  size_t size;
  const int* devices;     ///< at least 2 distinct devices; default NULL: all that are visible to the process
  size_t device_count;    ///< number of entries of `devices`
  size_t bytes;           ///< verified per test, moved per measurement; a multiple of 16; default 256 MiB
  int measure_bandwidth;  ///< default 1
  int repetitions;        ///< per measurement; default 10
  int round_trips;        ///< of the flag test; default 1000
  uint64_t seed;          ///< of the test data; default 1
  int64_t timeout_ms;     ///< for all pairs together; default 60 s
  int remember;           ///< not 0: record the outcome for onehop_peers_verified; default 0
} onehop_peer_check_options_t;
/// `size` is sizeof(onehop_peer_check_options_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_peer_check_options_init(onehop_peer_check_options_t* options, size_t size);

/// The results for every ordered pair, sorted by `from`, then `to`. Immutable; thread-safe.
typedef struct onehop_peer_report onehop_peer_report_t;

/// Tests every ordered pair in this process, one after the other, and enables access between the devices
/// permanently. Faults of a device or a link are reported in the results and are not errors. `options` may be
/// NULL.
ONEHOP_API onehop_status_t onehop_peers_check(const onehop_peer_check_options_t* options,
                                              onehop_peer_report_t** report);
ONEHOP_API void onehop_peer_report_destroy(onehop_peer_report_t* report);

/// One ordered pair: what `from` can do with the memory of `to`.
typedef struct onehop_peer_pair_t {
  size_t size;
  int from;
  int to;
  int ok;      ///< 1: access is available, and every test passed or was skipped
  int access;  ///< this field and the next three as in onehop_pair_attributes_t
  int performance_rank;
  int native_atomics;
  int array_access;
  const char* failure;  ///< one line about the first test that did not pass; "" when ok
  size_t test_count;    ///< for onehop_peer_report_test
  // Median bandwidths, one direction at a time, in 10^9 bytes per second; below 0 if not measured.
  double store_gbps;
  double load_gbps;
  double copy_gbps;
  double latency_ns;  ///< from a store on one device until the other sees it; below 0: not measured
} onehop_peer_pair_t;
/// `size` is sizeof(onehop_peer_pair_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_peer_pair_init(onehop_peer_pair_t* pair, size_t size);

typedef struct onehop_peer_test_result_t {
  size_t size;
  onehop_peer_test_t test;
  onehop_peer_outcome_t outcome;
  const char* detail;  ///< one line; "" if the test passed
} onehop_peer_test_result_t;
/// `size` is sizeof(onehop_peer_test_result_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_peer_test_result_init(onehop_peer_test_result_t* result, size_t size);

/// Number of pairs; 0 when `report` is NULL.
ONEHOP_API size_t onehop_peer_report_count(const onehop_peer_report_t* report);
/// Pair `index`, from 0.
ONEHOP_API onehop_status_t onehop_peer_report_pair(const onehop_peer_report_t* report, size_t index,
                                                   onehop_peer_pair_t* pair);
/// Test `test`, from 0, of pair `index`.
ONEHOP_API onehop_status_t onehop_peer_report_test(const onehop_peer_report_t* report, size_t index,
                                                   size_t test, onehop_peer_test_result_t* result);

/// `*verified` is 1 if every one of the `count` devices can access every other one, according to the
/// functional tests alone. They run at most once per boot, driver and pair.
ONEHOP_API onehop_status_t onehop_peers_verified(const int* devices, size_t count, int* verified);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(modernize-use-using, modernize-redundant-void-arg)
