// SPDX-License-Identifier: Apache-2.0
// onehop for C: devices, links and distances of one machine, and a diagnosis of it. Part of c_api.h;
// topology.h and diagnose.h describe the calls. onehop_topology_probe_json in c_api.h probes and returns the
// JSON in one call.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "onehop/c/base.h"

// C requires typedef and (void).
// NOLINTBEGIN(modernize-use-using, modernize-redundant-void-arg)
#ifdef __cplusplus
extern "C" {
#endif

// ---- Topology ----

/// The topology of one machine. Immutable; thread-safe. To change a topology, edit its JSON and parse that.
typedef struct onehop_topology onehop_topology_t;

/// Probes this machine. The notes record what could not be determined.
ONEHOP_API onehop_status_t onehop_topology_probe(onehop_topology_t** topology);
/// Parses the JSON that onehop_topology_to_json writes (docs/wire-formats.md). PROTOCOL names the invalid
/// field.
ONEHOP_API onehop_status_t onehop_topology_from_json(const char* json, onehop_topology_t** topology);
/// Reads and parses a file of that JSON.
ONEHOP_API onehop_status_t onehop_topology_load(const char* path, onehop_topology_t** topology);
ONEHOP_API void onehop_topology_destroy(onehop_topology_t* topology);

/// Return JSON, a readable matrix, and an SVG drawing. The caller releases the text with onehop_free.
ONEHOP_API onehop_status_t onehop_topology_to_json(const onehop_topology_t* topology, char** json);
ONEHOP_API onehop_status_t onehop_topology_to_text(const onehop_topology_t* topology, char** text);
ONEHOP_API onehop_status_t onehop_topology_to_svg(const onehop_topology_t* topology, char** svg);

/// What could not be determined and why, one line each. 0 and NULL if there is no such topology or note.
ONEHOP_API size_t onehop_topology_note_count(const onehop_topology_t* topology);
ONEHOP_API const char* onehop_topology_note(const onehop_topology_t* topology, size_t index);

/// The CPUs, for host ranks.
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
  const char* fabric_note;  ///< why fabric handles do not work; "" if they do or were not tested
  int multicast_supported;  ///< the driver's attribute; onehop never uses multicast
} onehop_device_info_t;
/// `size` is sizeof(onehop_device_info_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_device_info_init(onehop_device_info_t* info, size_t size);
/// 0 when `topology` is NULL.
ONEHOP_API int onehop_topology_device_count(const onehop_topology_t* topology);
ONEHOP_API onehop_status_t onehop_topology_device(const onehop_topology_t* topology, int device,
                                                  onehop_device_info_t* info);

/// PCIe distance between two devices, nearest first. The names are those that `nvidia-smi topo` prints.
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
  int nvlinks;           ///< active NVLinks towards the peer; -1: unknown
  int peer_access;       ///< 1: cudaDeviceCanAccessPeer returns 1
  int native_atomics;    ///< 1: atomics on the peer's memory are atomic for both devices
  int array_access;      ///< 1: access to CUDA arrays (textures and surfaces)
  int performance_rank;  ///< CUDA's P2P performance rank; lower is better; -1: unknown
  onehop_pci_path_t path;
} onehop_pair_info_t;
/// `size` is sizeof(onehop_pair_info_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_pair_info_init(onehop_pair_info_t* info, size_t size);
ONEHOP_API onehop_status_t onehop_topology_pair(const onehop_topology_t* topology, int from, int to,
                                                onehop_pair_info_t* info);

typedef int onehop_connectivity_t;
enum {
  ONEHOP_CONNECTIVITY_UNKNOWN = 0,         ///< a pair lacks a link in one direction, or its links are unknown
  ONEHOP_CONNECTIVITY_FULLY_CONNECTED = 1  ///< every pair has links in both directions
};

/// The connectivity of `count` devices, or of all if `devices` is NULL. ONEHOP_DEVICE_HOST stands for a host
/// rank: host ranks share memory and are fully connected.
ONEHOP_API onehop_status_t onehop_topology_connectivity(const onehop_topology_t* topology, const int* devices,
                                                        size_t count, onehop_connectivity_t* connectivity);
/// Returns the result and its reason in one line. The caller releases it with onehop_free.
ONEHOP_API onehop_status_t onehop_topology_explain_connectivity(const onehop_topology_t* topology,
                                                                const int* devices, size_t count,
                                                                char** text);

/// Names such as "in_progress" and "pix"; "unknown" for an unknown number. Constants; never NULL.
ONEHOP_API const char* onehop_fabric_state_name(onehop_fabric_state_t state);
ONEHOP_API const char* onehop_pci_path_name(onehop_pci_path_t path);
ONEHOP_API const char* onehop_connectivity_name(onehop_connectivity_t connectivity);

// ---- Diagnosis: the GPU part of `onehop doctor` ----

/// What works on this machine, what does not, and how to fix it. Immutable; thread-safe.
typedef struct onehop_diagnosis onehop_diagnosis_t;

/// Checks what onehop needs of the GPUs visible to this process. Initializes CUDA and retains the primary
/// context of every GPU for the life of the process, which can take seconds. Failed checks are not errors.
ONEHOP_API onehop_status_t onehop_diagnosis_of_gpus(onehop_diagnosis_t** diagnosis);
ONEHOP_API void onehop_diagnosis_destroy(onehop_diagnosis_t* diagnosis);
/// 1 if at least one GPU is usable; 0 also when `diagnosis` is NULL.
ONEHOP_API int onehop_diagnosis_usable(const onehop_diagnosis_t* diagnosis);
/// The summary in one line; "" when `diagnosis` is NULL.
ONEHOP_API const char* onehop_diagnosis_summary(const onehop_diagnosis_t* diagnosis);

typedef int onehop_health_t;
enum {
  ONEHOP_HEALTH_WORKS = 0,
  ONEHOP_HEALTH_FAILS = 1,
  ONEHOP_HEALTH_NOT_APPLICABLE = 2  ///< not needed on this machine, or information only
};

typedef struct onehop_finding_t {
  size_t size;
  const char* section;
  const char* name;
  onehop_health_t health;
  const char* detail;  ///< one line: what was found, or why it fails
  const char* remedy;  ///< one line: how to fix it, if it fails
  int essential;       ///< 1: the host backend needs it
} onehop_finding_t;
/// `size` is sizeof(onehop_finding_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_finding_init(onehop_finding_t* finding, size_t size);
/// Number of findings; 0 when `diagnosis` is NULL.
ONEHOP_API size_t onehop_diagnosis_finding_count(const onehop_diagnosis_t* diagnosis);
ONEHOP_API onehop_status_t onehop_diagnosis_finding(const onehop_diagnosis_t* diagnosis, size_t index,
                                                    onehop_finding_t* finding);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(modernize-use-using, modernize-redundant-void-arg)
