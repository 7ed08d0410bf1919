// SPDX-License-Identifier: Apache-2.0
// onehop for C: memory of GPUs that other processes can map. Part of c_api.h; device_memory.h describes the
// calls. All but onehop_memory_kind are ONEHOP_ERROR_UNSUPPORTED where there is no usable GPU.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "onehop/c/base.h"

// C has no other way to say these things.
// NOLINTBEGIN(modernize-use-using, modernize-redundant-void-arg)
#ifdef __cplusplus
extern "C" {
#endif

// ---- Memory made for sharing (the driver's virtual memory management) ----

/// Physical memory of one GPU, mapped into this process, and reachable from the devices that it was granted to.
typedef struct onehop_device_memory onehop_device_memory_t;

typedef struct onehop_device_memory_options_t {
  size_t size;
  onehop_share_by_t share_by;  ///< default ONEHOP_SHARE_BY_AUTOMATIC
  int gpu_direct_rdma;         ///< not 0: network cards may reach it too, where the device can; default 1
} onehop_device_memory_options_t;
/// `size` is sizeof(onehop_device_memory_options_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_device_memory_options_init(onehop_device_memory_options_t* options, size_t size);

/// A fabric handle is so many plain bytes, which any channel can carry.
#define ONEHOP_FABRIC_HANDLE_BYTES 64

/// Zeroed memory of at least `bytes` bytes on `device`. `options` may be NULL.
ONEHOP_API onehop_status_t onehop_device_memory_create(int device, size_t bytes,
                                                       const onehop_device_memory_options_t* options,
                                                       onehop_device_memory_t** memory);
/// Memory that another process exported, reachable from `for_device`. `bytes` is what its owner created. The
/// caller keeps `fd` and may close it at once.
ONEHOP_API onehop_status_t onehop_device_memory_import_fd(int fd, size_t bytes, int for_device,
                                                          onehop_device_memory_t** memory);
/// `handle` has ONEHOP_FABRIC_HANDLE_BYTES bytes.
ONEHOP_API onehop_status_t onehop_device_memory_import_fabric(const void* handle, size_t bytes,
                                                              int for_device,
                                                              onehop_device_memory_t** memory);
/// Unmaps it. Does not wait for kernels that still use the memory: wait for them first.
ONEHOP_API void onehop_device_memory_destroy(onehop_device_memory_t* memory);

/// As asked for; 0 when `memory` is NULL.
ONEHOP_API size_t onehop_device_memory_bytes(const onehop_device_memory_t* memory);
/// For kernels and copies; the CPU cannot read it. NULL when `memory` is NULL.
ONEHOP_API void* onehop_device_memory_data(const onehop_device_memory_t* memory);
/// The device it was made on or imported for; -1 when `memory` is NULL.
ONEHOP_API int onehop_device_memory_device(const onehop_device_memory_t* memory);

/// A new descriptor (close-on-exec) that the caller owns.
ONEHOP_API onehop_status_t onehop_device_memory_export_fd(const onehop_device_memory_t* memory, int* fd);
/// Writes ONEHOP_FABRIC_HANDLE_BYTES bytes to `handle`.
ONEHOP_API onehop_status_t onehop_device_memory_export_fabric(const onehop_device_memory_t* memory,
                                                              void* handle);
/// Grants `device` read-write access to this memory. Idempotent.
ONEHOP_API onehop_status_t onehop_device_memory_grant(const onehop_device_memory_t* memory, int device);
/// `*granted` is 1 when `device` has access, as the driver answers, else 0.
ONEHOP_API onehop_status_t onehop_device_memory_granted(const onehop_device_memory_t* memory, int device,
                                                        int* granted);

// ---- What a pointer points to ----

typedef int onehop_memory_kind_t;
enum {
  ONEHOP_MEMORY_KIND_HOST = 0,         ///< malloc, mmap, stack: CUDA does not know it
  ONEHOP_MEMORY_KIND_PINNED_HOST = 1,  ///< cudaMallocHost, cudaHostRegister
  ONEHOP_MEMORY_KIND_MANAGED = 2,      ///< cudaMallocManaged
  ONEHOP_MEMORY_KIND_DEVICE = 3,       ///< cudaMalloc: what CUDA IPC carries
  ONEHOP_MEMORY_KIND_VMM = 4,          ///< cuMemCreate: onehop_device_memory_t, PyTorch's expandable segments
  ONEHOP_MEMORY_KIND_POOL = 5,         ///< cudaMallocAsync, cudaMallocFromPoolAsync
  ONEHOP_MEMORY_KIND_OTHER = 6         ///< a GPU's, but not for sharing
};

/// Asks the driver what `pointer`, which may be NULL, points to. Without a driver everything is host memory.
ONEHOP_API onehop_status_t onehop_memory_kind(const void* pointer, onehop_memory_kind_t* kind);
/// "pinned host"; "unknown" for a number that is none. A constant; never NULL.
ONEHOP_API const char* onehop_memory_kind_name(onehop_memory_kind_t kind);

// ---- CUDA IPC: memory of cudaMalloc ----

/// Shares `bytes` bytes of memory of cudaMalloc, which may start inside an allocation and must stay allocated
/// while peers map it. `*handle` is `*handle_bytes` plain bytes for onehop_ipc_mapping_open in another process
/// (docs/wire-formats.md); the caller gives them back with onehop_free. INVALID_ARGUMENT says what memory
/// that CUDA IPC cannot carry is, and what to use instead.
ONEHOP_API onehop_status_t onehop_ipc_export(const void* pointer, size_t bytes, char** handle,
                                             size_t* handle_bytes);

/// A peer's memory, mapped into this process.
typedef struct onehop_ipc_mapping onehop_ipc_mapping_t;
/// Reachable from `for_device`. PROTOCOL unless the bytes are what onehop_ipc_export wrote.
ONEHOP_API onehop_status_t onehop_ipc_mapping_open(const void* handle, size_t handle_bytes, int for_device,
                                                   onehop_ipc_mapping_t** mapping);
/// NULL when `mapping` is NULL.
ONEHOP_API void* onehop_ipc_mapping_data(const onehop_ipc_mapping_t* mapping);
/// 0 when `mapping` is NULL.
ONEHOP_API size_t onehop_ipc_mapping_bytes(const onehop_ipc_mapping_t* mapping);
/// Wait for kernels that use the memory first.
ONEHOP_API void onehop_ipc_mapping_destroy(onehop_ipc_mapping_t* mapping);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(modernize-use-using, modernize-redundant-void-arg)
