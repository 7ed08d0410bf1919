// SPDX-License-Identifier: Apache-2.0
#include "onehop/device_memory.h"

#include <cstring>

#include "onehop/c/device_memory.h"

#include "c_api/convert.h"
#include "c_api/guard.h"

using namespace onehop;
using namespace onehop::c_api;

static_assert(ONEHOP_SHARE_BY_AUTOMATIC == static_cast<int>(ShareBy::automatic));
static_assert(ONEHOP_SHARE_BY_POSIX_FD == static_cast<int>(ShareBy::posix_fd));
static_assert(ONEHOP_SHARE_BY_FABRIC == static_cast<int>(ShareBy::fabric));
static_assert(ONEHOP_SHARE_BY_IPC == static_cast<int>(ShareBy::ipc));
static_assert(ONEHOP_FABRIC_HANDLE_BYTES == sizeof(FabricHandle));
static_assert(ONEHOP_MEMORY_KIND_HOST == static_cast<int>(MemoryKind::host));
static_assert(ONEHOP_MEMORY_KIND_PINNED_HOST == static_cast<int>(MemoryKind::pinned_host));
static_assert(ONEHOP_MEMORY_KIND_MANAGED == static_cast<int>(MemoryKind::managed));
static_assert(ONEHOP_MEMORY_KIND_DEVICE == static_cast<int>(MemoryKind::device));
static_assert(ONEHOP_MEMORY_KIND_VMM == static_cast<int>(MemoryKind::vmm));
static_assert(ONEHOP_MEMORY_KIND_POOL == static_cast<int>(MemoryKind::pool));
static_assert(ONEHOP_MEMORY_KIND_OTHER == static_cast<int>(MemoryKind::other));

struct onehop_device_memory {
  DeviceMemory memory;
};

struct onehop_ipc_mapping {
  IpcMapping mapping;
};

namespace {

onehop_device_memory_options_t memory_defaults() {
  const DeviceMemoryOptions from;
  onehop_device_memory_options_t defaults{};
  defaults.share_by = static_cast<onehop_share_by_t>(from.share_by);
  defaults.gpu_direct_rdma = from.gpu_direct_rdma ? 1 : 0;
  return defaults;
}

DeviceMemoryOptions to_memory_options(const onehop_device_memory_options_t* options) {
  if (options == nullptr) return {};
  const onehop_device_memory_options_t given = read_options(options, "options", memory_defaults());
  return {.share_by = to_enumerator(given.share_by, ShareBy::fabric, "options->share_by"),
          .gpu_direct_rdma = given.gpu_direct_rdma != 0};
}

const DeviceMemory& in(const onehop_device_memory_t* memory) {
  return deref(memory, "memory").memory;
}

}  // namespace

extern "C" {

void onehop_device_memory_options_init(onehop_device_memory_options_t* options, size_t size) {
  init_options(options, size, memory_defaults());
}

onehop_status_t onehop_device_memory_create(int device, size_t bytes,
                                            const onehop_device_memory_options_t* options,
                                            onehop_device_memory_t** memory) {
  return produce(memory, "memory", [&] {
    return new onehop_device_memory{
        DeviceMemory::create(DeviceId{device}, bytes, to_memory_options(options))};
  });
}

onehop_status_t onehop_device_memory_import_fd(int fd, size_t bytes, int for_device,
                                               onehop_device_memory_t** memory) {
  return produce(memory, "memory", [&] {
    return new onehop_device_memory{DeviceMemory::import_fd(fd, bytes, DeviceId{for_device})};
  });
}

onehop_status_t onehop_device_memory_import_fabric(const void* handle, size_t bytes, int for_device,
                                                   onehop_device_memory_t** memory) {
  return produce(memory, "memory", [&] {
    FabricHandle from;
    std::memcpy(&from, c_api::bytes(handle, sizeof from, "handle").data(), sizeof from);
    return new onehop_device_memory{DeviceMemory::import_fabric(from, bytes, DeviceId{for_device})};
  });
}

void onehop_device_memory_destroy(onehop_device_memory_t* memory) {
  delete memory;
}

size_t onehop_device_memory_bytes(const onehop_device_memory_t* memory) {
  if (memory == nullptr) return 0;
  return guard_or(std::size_t{0}, [&] { return memory->memory.bytes(); });
}

void* onehop_device_memory_data(const onehop_device_memory_t* memory) {
  if (memory == nullptr) return nullptr;
  return guard_or<void*>(nullptr, [&] { return memory->memory.data(); });
}

int onehop_device_memory_device(const onehop_device_memory_t* memory) {
  if (memory == nullptr) return -1;
  return guard_or(-1, [&] { return memory->memory.device().value; });
}

onehop_status_t onehop_device_memory_export_fd(const onehop_device_memory_t* memory, int* fd) {
  return produce(fd, "fd", [&] { return in(memory).export_fd(); });
}

onehop_status_t onehop_device_memory_export_fabric(const onehop_device_memory_t* memory, void* handle) {
  return guard([&] {
    const FabricHandle made = in(memory).export_fabric();
    require(handle != nullptr, "handle must not be NULL");
    std::memcpy(handle, &made, sizeof made);
  });
}

onehop_status_t onehop_device_memory_grant(const onehop_device_memory_t* memory, int device) {
  return guard([&] { in(memory).grant(DeviceId{device}); });
}

onehop_status_t onehop_device_memory_granted(const onehop_device_memory_t* memory, int device, int* granted) {
  return guard([&] { deref(granted, "granted") = in(memory).granted(DeviceId{device}) ? 1 : 0; });
}

onehop_status_t onehop_memory_kind(const void* pointer, onehop_memory_kind_t* kind) {
  return guard([&] { deref(kind, "kind") = static_cast<onehop_memory_kind_t>(memory_kind(pointer)); });
}

const char* onehop_memory_kind_name(onehop_memory_kind_t kind) {
  return name_of(kind, MemoryKind::other);
}

onehop_status_t onehop_ipc_export(const void* pointer, size_t bytes, char** handle, size_t* handle_bytes) {
  return guard([&] {
    char*& out = deref(handle, "handle");
    std::size_t& size = deref(handle_bytes, "handle_bytes");
    hand_out(export_ipc(pointer, bytes).to_bytes(), out, size);
  });
}

onehop_status_t onehop_ipc_mapping_open(const void* handle, size_t handle_bytes, int for_device,
                                        onehop_ipc_mapping_t** mapping) {
  return produce(mapping, "mapping", [&] {
    const IpcHandle from = IpcHandle::from_bytes(c_api::bytes(handle, handle_bytes, "handle"));
    return new onehop_ipc_mapping{IpcMapping::open(from, DeviceId{for_device})};
  });
}

void* onehop_ipc_mapping_data(const onehop_ipc_mapping_t* mapping) {
  return mapping == nullptr ? nullptr : mapping->mapping.data();
}

size_t onehop_ipc_mapping_bytes(const onehop_ipc_mapping_t* mapping) {
  return mapping == nullptr ? 0 : mapping->mapping.bytes();
}

void onehop_ipc_mapping_destroy(onehop_ipc_mapping_t* mapping) {
  delete mapping;
}

}  // extern "C"
