// SPDX-License-Identifier: Apache-2.0
// onehop for C: devices, links and distances of one machine, and what works on it. Part of c_api.h; topology.h
// and diagnose.h describe the calls. onehop_topology_probe_json in c_api.h is a probe and its JSON in one call.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "onehop/c/base.h"

// C has no other way to say these things.
// NOLINTBEGIN(modernize-use-using, modernize-redundant-void-arg)
#ifdef __cplusplus
extern "C" {
#endif

// ---- Topology ----

/// Who can reach whom. Does not change; thread-safe. To change one: edit its JSON and read that.
typedef struct onehop_topology onehop_topology_t;

/// Asks this machine. What could not be asked is in the notes.
ONEHOP_API onehop_status_t onehop_topology_probe(onehop_topology_t** topology);
/// Parses what onehop_topology_to_json writes (docs/wire-formats.md). PROTOCOL names the field that is wrong.
ONEHOP_API onehop_status_t onehop_topology_from_json(const char* json, onehop_topology_t** topology);
/// Reads a file of it.
ONEHOP_API onehop_status_t onehop_topology_load(const char* path, onehop_topology_t** topology);
ONEHOP_API void onehop_topology_destroy(onehop_topology_t* topology);

/// JSON, a matrix for people, a drawing. The caller gives the text back with onehop_free.
ONEHOP_API onehop_status_t onehop_topology_to_json(const onehop_topology_t* topology, char** json);
ONEHOP_API onehop_status_t onehop_topology_to_text(const onehop_topology_t* topology, char** text);
ONEHOP_API onehop_status_t onehop_topology_to_svg(const onehop_topology_t* topology, char** svg);

/// What could not be found out and why, one line each. 0 and NULL when there is no such topology or note.
ONEHOP_API size_t onehop_topology_note_count(const onehop_topology_t* topology);
ONEHOP_API const char* onehop_topology_note(const onehop_topology_t* topology, size_t index);

/// The CPU side, for host ranks.
typedef struct onehop_host_info_t {
  size_t size;
  const char* hostname;
  const char* cpu_model;
  int cores;               ///< physical cores this process may run on
  int cpus;                ///< hardware threads this process may run on
  size_t numa_node_count;  ///< for onehop_topology_numa_node
  size_t cache_count;      ///< for onehop_topology_cache
} onehop_host_info_t;
/// `size` is sizeof(onehop_host_info_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_host_info_init(onehop_host_info_t* host, size_t size);
ONEHOP_API onehop_status_t onehop_topology_host(const onehop_topology_t* topology, onehop_host_info_t* host);

typedef struct onehop_numa_node_t {
  size_t size;
  int id;
  uint64_t memory_bytes;
  const int* cpus;  ///< OS processor numbers
  size_t cpu_count;
} onehop_numa_node_t;
/// `size` is sizeof(onehop_numa_node_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_numa_node_init(onehop_numa_node_t* node, size_t size);
ONEHOP_API onehop_status_t onehop_topology_numa_node(const onehop_topology_t* topology, size_t index,
                                                     onehop_numa_node_t* node);

/// A cache shared by some cores.
typedef struct onehop_cache_info_t {
  size_t size;
  int level;
  uint64_t bytes;
  const int* cpus;  ///< OS processor numbers
  size_t cpu_count;
} onehop_cache_info_t;
/// `size` is sizeof(onehop_cache_info_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_cache_info_init(onehop_cache_info_t* cache, size_t size);
ONEHOP_API onehop_status_t onehop_topology_cache(const onehop_topology_t* topology, size_t index,
                                                 onehop_cache_info_t* cache);

/// State of a device's NVLink fabric registration, as NVML reports it.
typedef int onehop_fabric_state_t;
enum {
  ONEHOP_FABRIC_STATE_UNSUPPORTED = 0,
  ONEHOP_FABRIC_STATE_NOT_STARTED = 1,
  ONEHOP_FABRIC_STATE_IN_PROGRESS = 2,
  ONEHOP_FABRIC_STATE_COMPLETED = 3
};

typedef struct onehop_device_info_t {
  size_t size;
  const char* uuid;        ///< "GPU-...": identity of a device across processes
  const char* name;        ///< "NVIDIA H200"
  const char* pci_bus_id;  ///< "00000000:19:00.0", lower case
  int numa_node;           ///< -1: unknown
  int compute_capability;  ///< 90 for 9.0; 0: unknown
  uint64_t memory_bytes;
  onehop_fabric_state_t fabric;
  const char* fabric_cluster;  ///< cluster uuid; "" when unsupported
  uint32_t fabric_clique;
  int fabric_handles;       ///< 1: memory can be shared by fabric handles
  const char* fabric_note;  ///< why it cannot; "" when it can, or was not asked
  int multicast_supported;  ///< the driver's attribute only; onehop never uses multicast
} onehop_device_info_t;
/// `size` is sizeof(onehop_device_info_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_device_info_init(onehop_device_info_t* info, size_t size);
/// 0 when `topology` is NULL.
ONEHOP_API int onehop_topology_device_count(const onehop_topology_t* topology);
ONEHOP_API onehop_status_t onehop_topology_device(const onehop_topology_t* topology, int device,
                                                  onehop_device_info_t* info);

/// How a pair of devices is joined, nearest first. The PCIe classes are those `nvidia-smi topo` prints.
typedef int onehop_pci_path_t;
enum {
  ONEHOP_PCI_PATH_SELF = 0,
  ONEHOP_PCI_PATH_PIX = 1,
  ONEHOP_PCI_PATH_PXB = 2,
  ONEHOP_PCI_PATH_PHB = 3,
  ONEHOP_PCI_PATH_NODE = 4,
  ONEHOP_PCI_PATH_SYS = 5,
  ONEHOP_PCI_PATH_UNKNOWN = 6
};

/// One directed pair of devices.
typedef struct onehop_pair_info_t {
  size_t size;
  int nvlinks;           ///< active NVLinks usable towards the peer; -1: unknown
  int peer_access;       ///< 1: cudaDeviceCanAccessPeer says yes
  int native_atomics;    ///< 1: atomics on the peer's memory are atomic for both devices
  int array_access;      ///< 1: CUDA arrays (textures and surfaces) too
  int performance_rank;  ///< CUDA's P2P performance rank; lower is better; -1: unknown
  onehop_pci_path_t path;
} onehop_pair_info_t;
/// `size` is sizeof(onehop_pair_info_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_pair_info_init(onehop_pair_info_t* info, size_t size);
ONEHOP_API onehop_status_t onehop_topology_pair(const onehop_topology_t* topology, int from, int to,
                                                onehop_pair_info_t* info);

typedef int onehop_connectivity_t;
enum {
  ONEHOP_CONNECTIVITY_UNKNOWN = 0,         ///< at least one pair lacks a direct link in one direction
  ONEHOP_CONNECTIVITY_FULLY_CONNECTED = 1  ///< every pair has links in both directions
};

/// Of `count` devices; of all when `devices` is NULL. ONEHOP_DEVICE_HOST stands for a host rank: host ranks
/// share memory and are fully connected.
ONEHOP_API onehop_status_t onehop_topology_connectivity(const onehop_topology_t* topology, const int* devices,
                                                        size_t count, onehop_connectivity_t* connectivity);
/// The verdict and its reason in one line, given back with onehop_free.
ONEHOP_API onehop_status_t onehop_topology_explain_connectivity(const onehop_topology_t* topology,
                                                                const int* devices, size_t count,
                                                                char** text);

/// "in_progress", "pix"; "unknown" for a number that is none. Constants; never NULL.
ONEHOP_API const char* onehop_fabric_state_name(onehop_fabric_state_t state);
ONEHOP_API const char* onehop_pci_path_name(onehop_pci_path_t path);
ONEHOP_API const char* onehop_connectivity_name(onehop_connectivity_t connectivity);

// ---- Diagnosis: what `onehop doctor` shows of GPUs ----

/// What works here, what does not and what to do about it. Does not change; thread-safe.
typedef struct onehop_diagnosis onehop_diagnosis_t;

/// Tries what onehop needs of the GPUs that this process sees. Initialises CUDA and takes a context on every
/// GPU, which can take seconds and stays for the life of the process. What does not work is no error.
ONEHOP_API onehop_status_t onehop_diagnosis_of_gpus(onehop_diagnosis_t** diagnosis);
ONEHOP_API void onehop_diagnosis_destroy(onehop_diagnosis_t* diagnosis);
/// 1: at least one GPU can be used. 0 also when `diagnosis` is NULL.
ONEHOP_API int onehop_diagnosis_usable(const onehop_diagnosis_t* diagnosis);
/// One line; "" when `diagnosis` is NULL.
ONEHOP_API const char* onehop_diagnosis_summary(const onehop_diagnosis_t* diagnosis);

typedef int onehop_health_t;
enum {
  ONEHOP_HEALTH_WORKS = 0,
  ONEHOP_HEALTH_FAILS = 1,
  ONEHOP_HEALTH_NOT_APPLICABLE = 2  ///< not needed here, or plain information
};

typedef struct onehop_finding_t {
  size_t size;
  const char* section;
  const char* name;
  onehop_health_t health;
  const char* detail;  ///< one line: what was found, or why it fails
  const char* remedy;  ///< one line, for what fails
  int essential;       ///< 1: the host backend needs it
} onehop_finding_t;
/// `size` is sizeof(onehop_finding_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_finding_init(onehop_finding_t* finding, size_t size);
/// 0 when `diagnosis` is NULL.
ONEHOP_API size_t onehop_diagnosis_finding_count(const onehop_diagnosis_t* diagnosis);
ONEHOP_API onehop_status_t onehop_diagnosis_finding(const onehop_diagnosis_t* diagnosis, size_t index,
                                                    onehop_finding_t* finding);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(modernize-use-using, modernize-redundant-void-arg)
