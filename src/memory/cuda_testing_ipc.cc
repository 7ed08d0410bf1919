// SPDX-License-Identifier: Apache-2.0
// Pointer queries, cuMemAlloc memory, and CUDA IPC.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "memory/cuda_testing.h"

namespace onehop {

void FakeCuda::fill_pointers() {
  table_.PointerGetAttribute = [](void* out, CUpointer_attribute which, CUdeviceptr at) {
    ONEHOP_FAKE_STEP("cuPointerGetAttribute");
    if (self.context_ == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    const auto found = self.find(at);
    if (found == self.memory_.end()) return CUDA_ERROR_INVALID_VALUE;
    const Memory& memory = found->second;
    const auto answer = [&](auto value) {
      std::memcpy(out, &value, sizeof value);
      return CUDA_SUCCESS;
    };
    switch (which) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return answer(static_cast<unsigned>(memory.type));
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return answer(memory.managed ? 1U : 0U);
      case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return answer(static_cast<std::uintptr_t>(memory.pool ? 1 : 0));
      case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return answer(memory.ipc ? 1 : 0);
      case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return answer(memory.id);
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return answer(memory.device);
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  };
  table_.PointerGetAttributes = [](unsigned count, CUpointer_attribute* which, void** out, CUdeviceptr at) {
    ONEHOP_FAKE_STEP("cuPointerGetAttributes");
    ++self.pointer_queries_;
    const auto found = self.find(at);
    const bool known = found != self.memory_.end();
    for (unsigned i = 0; i < count; ++i) {
      const auto answer = [&](auto value) { std::memcpy(out[i], &value, sizeof value); };
      switch (which[i]) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
          answer(known ? static_cast<unsigned>(found->second.type) : 0U);
          break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
          answer(known ? found->second.device : -2);
          break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
          answer(known && found->second.managed ? 1U : 0U);
          break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
          answer(known ? found->first : CUdeviceptr{0});
          break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
          answer(known ? found->second.bytes : std::size_t{0});
          break;
        default:
          return CUDA_ERROR_INVALID_VALUE;
      }
    }
    return CUDA_SUCCESS;
  };
  table_.StreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    ONEHOP_FAKE_STEP("cuStreamIsCapturing");
    *status = self.capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  };
  table_.MemRetainAllocationHandle = [](CUmemGenericAllocationHandle* handle, void* at) {
    ONEHOP_FAKE_STEP("cuMemRetainAllocationHandle");
    const auto found = self.find(reinterpret_cast<CUdeviceptr>(at));
    if (found == self.memory_.end() || !found->second.vmm) return CUDA_ERROR_INVALID_VALUE;
    const Memory& memory = found->second;
    os::UniqueFd fd(::memfd_create("fake-gpu", 0));
    if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(memory.bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    Made made{.bytes = memory.bytes};
    made.request.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memory.device};
    if (memory.exportable) made.request.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    self.made_[number_of(fd.get())] = made;
    *handle = self.add(std::move(fd));
    return CUDA_SUCCESS;
  };
  table_.MemGetAddressRange = [](CUdeviceptr* begin, std::size_t* bytes, CUdeviceptr at) {
    ONEHOP_FAKE_STEP("cuMemGetAddressRange");
    const auto found = self.find(at);
    if (found == self.memory_.end()) return CUDA_ERROR_NOT_FOUND;
    *begin = found->first;
    *bytes = found->second.bytes;
    return CUDA_SUCCESS;
  };
}

void FakeCuda::fill_ipc() {
  table_.MemAlloc = [](CUdeviceptr* at, std::size_t bytes) {
    ONEHOP_FAKE_STEP("cuMemAlloc");
    const int fd = ::memfd_create("fake-gpu", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *at = map_backing(fd, bytes);
    std::memset(reinterpret_cast<void*>(*at), 0xab, bytes);
    const int device = self.current_device();
    self.memory_[*at] = {.bytes = bytes,
                         .device = device,
                         .ipc = self.ipc_capable,
                         .id = ++self.last_id_,
                         .backing = fd,
                         .access = {device}};
    return CUDA_SUCCESS;
  };
  table_.MemFree = [](CUdeviceptr at) {
    const auto found = current_->memory_.find(at);
    if (found == current_->memory_.end() || found->second.backing < 0 || found->second.opened_from != 0) {
      current_->wrong("freed what was not allocated");
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (const auto& [other, each] : current_->memory_) {
      if (each.opened_from == at) current_->wrong("freed while a peer had it open");
    }
    (void)::munmap(reinterpret_cast<void*>(at), found->second.bytes);
    (void)::close(found->second.backing);
    current_->memory_.erase(found);
    return CUDA_SUCCESS;
  };
  table_.IpcGetMemHandle = [](CUipcMemHandle* handle, CUdeviceptr at) {
    ONEHOP_FAKE_STEP("cuIpcGetMemHandle");
    if (self.memory_.count(at) == 0) return CUDA_ERROR_INVALID_VALUE;
    *handle = {};
    std::memcpy(handle->reserved, &at, sizeof at);
    const Memory& memory = self.memory_[at];
    const Foreign location{.number = number_of(memory.backing),
                           .process = ::getpid(),
                           .fd = memory.backing,
                           .device = memory.device,
                           .bytes = memory.bytes};
    static_assert(sizeof at + sizeof location <= sizeof handle->reserved);
    std::memcpy(handle->reserved + sizeof at, &location, sizeof location);
    return CUDA_SUCCESS;
  };
  table_.IpcOpenMemHandle = [](CUdeviceptr* base, CUipcMemHandle handle, unsigned flags) {
    ONEHOP_FAKE_STEP("cuIpcOpenMemHandle");
    CUdeviceptr at = 0;
    std::memcpy(&at, handle.reserved, sizeof at);
    Foreign location;
    std::memcpy(&location, handle.reserved + sizeof at, sizeof location);
    if (location.process != ::getpid() && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
      const int fd = location.open().release();  // closed with the process
      if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
      *base = map_backing(fd, location.bytes);
      self.memory_[*base] = {.bytes = location.bytes,
                             .device = location.device,
                             .ipc = false,
                             .id = ++self.last_id_,
                             .opened_from = at,
                             .backing = fd};
      ++self.openings_;
      return CUDA_SUCCESS;
    }
    const auto found = self.memory_.find(at);
    if (found == self.memory_.end() || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
      return CUDA_ERROR_INVALID_VALUE;
    Memory copy = found->second;
    copy.ipc = false;
    copy.id = 0;
    copy.opened_from = at;
    if (copy.backing >= 0) {
      *base = map_backing(copy.backing, copy.bytes);
      copy.id = ++self.last_id_;
      self.memory_[*base] = copy;
    } else {
      *base = reinterpret_cast<CUdeviceptr>(self.add_memory(copy));
    }
    ++self.openings_;
    return CUDA_SUCCESS;
  };
  table_.IpcCloseMemHandle = [](CUdeviceptr base) {
    if (current_->memory_.count(base) == 0 || current_->memory_[base].opened_from == 0)
      current_->wrong("closed what was not open");
    if (current_->memory_[base].backing >= 0)
      (void)::munmap(reinterpret_cast<void*>(base), current_->memory_[base].bytes);
    current_->memory_.erase(base);
    return CUDA_SUCCESS;
  };
}

}  // namespace onehop
