// SPDX-License-Identifier: Apache-2.0
// onehop for C: GPU memory that other processes can map. Part of c_api.h; device_memory.h describes the
// calls. All of them except onehop_memory_kind return ONEHOP_ERROR_UNSUPPORTED if there is no usable GPU.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "onehop/c/base.h"

// C requires typedef and (void).
// NOLINTBEGIN(modernize-use-using, modernize-redundant-void-arg)
#ifdef __cplusplus
extern "C" {
#endif

// ---- Memory allocated for sharing (CUDA virtual memory management) ----

/// Physical memory of one GPU, mapped into this process. Only devices with a grant can access it.
typedef struct onehop_device_memory onehop_device_memory_t;

typedef struct onehop_device_memory_options_t {
  size_t size;
  onehop_share_by_t share_by;  ///< default ONEHOP_SHARE_BY_AUTOMATIC
  int gpu_direct_rdma;  ///< not 0: also allow RDMA by network cards, if the device supports it; default 1
} onehop_device_memory_options_t;
/// `size` is sizeof(onehop_device_memory_options_t) as the caller was compiled. NULL does nothing.
ONEHOP_API void onehop_device_memory_options_init(onehop_device_memory_options_t* options, size_t size);

/// Size of a fabric handle, which consists of plain bytes for any channel.
#define ONEHOP_FABRIC_HANDLE_BYTES 64

/// Allocates at least `bytes` bytes of zeroed memory on `device`. `options` may be NULL.
ONEHOP_API onehop_status_t onehop_device_memory_create(int device, size_t bytes,
                                                       const onehop_device_memory_options_t* options,
                                                       onehop_device_memory_t** memory);
/// Maps memory that another process exported, for access from `for_device`. `bytes` is the size that its
/// owner allocated. The caller keeps `fd` and may close it at once.
ONEHOP_API onehop_status_t onehop_device_memory_import_fd(int fd, size_t bytes, int for_device,
                                                          onehop_device_memory_t** memory);
/// Like onehop_device_memory_import_fd, for a fabric handle of ONEHOP_FABRIC_HANDLE_BYTES bytes.
ONEHOP_API onehop_status_t onehop_device_memory_import_fabric(const void* handle, size_t bytes,
                                                              int for_device,
                                                              onehop_device_memory_t** memory);
/// Unmaps the memory. Does not wait for kernels that still use it: wait for them first.
ONEHOP_API void onehop_device_memory_destroy(onehop_device_memory_t* memory);

/// The requested size; 0 when `memory` is NULL.
ONEHOP_API size_t onehop_device_memory_bytes(const onehop_device_memory_t* memory);
/// The address for kernels and copies; the CPU cannot access it. NULL when `memory` is NULL.
ONEHOP_API void* onehop_device_memory_data(const onehop_device_memory_t* memory);
/// The device that the memory was created on or imported for; -1 when `memory` is NULL.
ONEHOP_API int onehop_device_memory_device(const onehop_device_memory_t* memory);

/// Returns a new descriptor (close-on-exec) that the caller owns.
ONEHOP_API onehop_status_t onehop_device_memory_export_fd(const onehop_device_memory_t* memory, int* fd);
/// Writes ONEHOP_FABRIC_HANDLE_BYTES bytes to `handle`.
ONEHOP_API onehop_status_t onehop_device_memory_export_fabric(const onehop_device_memory_t* memory,
                                                              void* handle);
/// Grants `device` read-write access to this memory. Idempotent.
ONEHOP_API onehop_status_t onehop_device_memory_grant(const onehop_device_memory_t* memory, int device);
/// `*granted` is 1 if `device` has access according to the driver, else 0.
ONEHOP_API onehop_status_t onehop_device_memory_granted(const onehop_device_memory_t* memory, int device,
                                                        int* granted);

// ---- Kinds of memory ----

typedef int onehop_memory_kind_t;
enum {
  ONEHOP_MEMORY_KIND_HOST = 0,         ///< malloc, mmap, stack: unknown to CUDA
  ONEHOP_MEMORY_KIND_PINNED_HOST = 1,  ///< cudaMallocHost, cudaHostRegister
  ONEHOP_MEMORY_KIND_MANAGED = 2,      ///< cudaMallocManaged
  ONEHOP_MEMORY_KIND_DEVICE = 3,       ///< cudaMalloc: CUDA IPC can share it
  ONEHOP_MEMORY_KIND_VMM = 4,          ///< cuMemCreate: onehop_device_memory_t, PyTorch's expandable segments
  ONEHOP_MEMORY_KIND_POOL = 5,         ///< cudaMallocAsync, cudaMallocFromPoolAsync
  ONEHOP_MEMORY_KIND_OTHER = 6         ///< GPU memory that cannot be shared
};

/// Asks the driver which kind of memory `pointer`, which may be NULL, refers to. Without a driver all memory
/// is host memory.
ONEHOP_API onehop_status_t onehop_memory_kind(const void* pointer, onehop_memory_kind_t* kind);
/// The name of a kind, such as "pinned host"; "unknown" for an unknown number. A constant; never NULL.
ONEHOP_API const char* onehop_memory_kind_name(onehop_memory_kind_t kind);

// ---- CUDA IPC: cudaMalloc memory ----

/// Exports `bytes` bytes of cudaMalloc memory, which may begin inside an allocation and must stay allocated
/// while peers map it. `*handle` receives `*handle_bytes` plain bytes for onehop_ipc_mapping_open in another
/// process (docs/wire-formats.md); release it with onehop_free. INVALID_ARGUMENT for memory that CUDA IPC
/// cannot share; the message names the kind of memory and an alternative.
ONEHOP_API onehop_status_t onehop_ipc_export(const void* pointer, size_t bytes, char** handle,
                                             size_t* handle_bytes);

/// A peer's memory, mapped into this process.
typedef struct onehop_ipc_mapping onehop_ipc_mapping_t;
/// Maps the memory for access from `for_device`. PROTOCOL if onehop_ipc_export did not write the bytes.
ONEHOP_API onehop_status_t onehop_ipc_mapping_open(const void* handle, size_t handle_bytes, int for_device,
                                                   onehop_ipc_mapping_t** mapping);
/// The address of the memory; NULL when `mapping` is NULL.
ONEHOP_API void* onehop_ipc_mapping_data(const onehop_ipc_mapping_t* mapping);
/// The size of the memory; 0 when `mapping` is NULL.
ONEHOP_API size_t onehop_ipc_mapping_bytes(const onehop_ipc_mapping_t* mapping);
/// Unmaps the memory. Wait for kernels that use it first.
ONEHOP_API void onehop_ipc_mapping_destroy(onehop_ipc_mapping_t* mapping);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(modernize-use-using, modernize-redundant-void-arg)
