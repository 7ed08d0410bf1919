// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: physical memory, address ranges, and shareable handles.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "memory/cuda_testing.h"

namespace onehop {

void FakeCuda::fill_memory() {
  table_.MemGetAllocationGranularity = [](std::size_t* unit, const CUmemAllocationProp*,
                                          CUmemAllocationGranularity_flags) {
    ONEHOP_FAKE_STEP("cuMemGetAllocationGranularity");
    *unit = kGranularity;
    return CUDA_SUCCESS;
  };
  table_.MemCreate = [](CUmemGenericAllocationHandle* handle, std::size_t bytes,
                        const CUmemAllocationProp* wanted, unsigned long long) {
    ONEHOP_FAKE_STEP("cuMemCreate");
    self.last_request_ = *wanted;
    ++self.creations_;
    if ((wanted->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && !self.fabric)
      return CUDA_ERROR_NOT_PERMITTED;
    if (bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
    os::UniqueFd fd(::memfd_create("fake-gpu", 0));  // not close-on-exec, which the driver does not guarantee
    if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    const std::vector<unsigned char> garbage(bytes, 0xab);
    if (::pwrite(fd.get(), garbage.data(), bytes, 0) < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    self.made_[number_of(fd.get())] = {.bytes = bytes, .request = *wanted};
    *handle = self.add(std::move(fd));
    return CUDA_SUCCESS;
  };
  table_.MemRelease = [](CUmemGenericAllocationHandle handle) {
    if (current_->physical_.erase(handle) == 0) current_->wrong("released twice");
    return CUDA_SUCCESS;
  };
  table_.MemAddressReserve = [](CUdeviceptr* at, std::size_t bytes, std::size_t, CUdeviceptr,
                                unsigned long long) {
    ONEHOP_FAKE_STEP("cuMemAddressReserve");
    void* const data = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    *at = reinterpret_cast<CUdeviceptr>(data);
    self.ranges_[*at] = bytes;
    return CUDA_SUCCESS;
  };
  table_.MemAddressFree = [](CUdeviceptr at, std::size_t bytes) {
    if (current_->mapped_.count(at) != 0) current_->wrong("addresses freed while mapped");
    if (current_->ranges_.erase(at) == 0) current_->wrong("addresses freed twice");
    (void)::munmap(reinterpret_cast<void*>(at), bytes);
    return CUDA_SUCCESS;
  };
  table_.MemMap = [](CUdeviceptr at, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle handle,
                     unsigned long long) {
    ONEHOP_FAKE_STEP("cuMemMap");
    const auto memory = self.physical_.find(handle);
    if (memory == self.physical_.end() || self.ranges_[at] != bytes) return CUDA_ERROR_INVALID_VALUE;
    if (self.made_[memory->second.number].bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
    if (::mmap(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
               memory->second.fd.get(), 0) == MAP_FAILED)
      return CUDA_ERROR_OUT_OF_MEMORY;
    self.mapped_[at] = {.bytes = bytes, .access = {}};
    return CUDA_SUCCESS;
  };
  table_.MemUnmap = [](CUdeviceptr at, std::size_t bytes) {
    if (current_->mapped_.erase(at) == 0) current_->wrong("unmapped twice");
    (void)::mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                 0);
    return CUDA_SUCCESS;
  };
  table_.MemSetAccess = [](CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc* access,
                           std::size_t count) {
    ONEHOP_FAKE_STEP("cuMemSetAccess");
    const auto mapped = self.mapped_.find(at);
    const auto known = self.memory_.find(at);
    const bool foreign = known != self.memory_.end() && known->second.vmm && known->second.bytes == bytes;
    if (!foreign && (mapped == self.mapped_.end() || mapped->second.bytes != bytes))
      return CUDA_ERROR_INVALID_VALUE;
    std::set<int>& granted = foreign ? known->second.access : mapped->second.access;
    for (std::size_t i = 0; i < count; ++i) {
      // onehop maps no memory read-only.
      if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
      granted.insert(access[i].location.id);
    }
    return CUDA_SUCCESS;
  };
  table_.MemGetAccess = [](unsigned long long* flags, const CUmemLocation* location, CUdeviceptr at) {
    ONEHOP_FAKE_STEP("cuMemGetAccess");
    const bool may = self.access(reinterpret_cast<void*>(at)).count(location->id) != 0;
    *flags = may ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  };
  table_.MemExportToShareableHandle = [](void* out, CUmemGenericAllocationHandle handle,
                                         CUmemAllocationHandleType type, unsigned long long) {
    ONEHOP_FAKE_STEP("cuMemExportToShareableHandle");
    const auto memory = self.physical_.find(handle);
    if (memory == self.physical_.end()) return CUDA_ERROR_INVALID_VALUE;
    if ((self.made_[memory->second.number].request.requestedHandleTypes & type) == 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
      const Foreign location{
          .number = memory->second.number, .process = ::getpid(), .fd = memory->second.fd.get()};
      std::memcpy(out, &location, sizeof location);
    } else {
      const int fd = ::dup(memory->second.fd.get());
      std::memcpy(out, &fd, sizeof fd);
    }
    return CUDA_SUCCESS;
  };
  table_.MemImportFromShareableHandle = [](CUmemGenericAllocationHandle* handle, void* shareable,
                                           CUmemAllocationHandleType type) {
    ONEHOP_FAKE_STEP("cuMemImportFromShareableHandle");
    int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(shareable));
    if (type != CU_MEM_HANDLE_TYPE_FABRIC && !self.passable) return CUDA_ERROR_OPERATING_SYSTEM;
    os::UniqueFd foreign;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
      Foreign location;
      std::memcpy(&location, shareable, sizeof location);
      fd = -1;
      for (const auto& [key, each] : self.physical_) {
        if (each.number == location.number) fd = each.fd.get();
      }
      if (fd < 0) {
        foreign = location.open();
        fd = foreign.get();
      }
    }
    self.adopt_foreign(fd, type);
    if (fd < 0 || self.made_.count(number_of(fd)) == 0) return CUDA_ERROR_INVALID_VALUE;
    *handle = self.add(os::UniqueFd(::dup(fd)));
    return CUDA_SUCCESS;
  };
  table_.MemGetAllocationPropertiesFromHandle = [](CUmemAllocationProp* found,
                                                   CUmemGenericAllocationHandle handle) {
    ONEHOP_FAKE_STEP("cuMemGetAllocationPropertiesFromHandle");
    *found = self.made_[self.physical_[handle].number].request;
    return CUDA_SUCCESS;
  };
  table_.MemsetD8Async = [](CUdeviceptr at, unsigned char value, std::size_t bytes, CUstream) {
    ONEHOP_FAKE_STEP("cuMemsetD8Async");
    if (self.access(reinterpret_cast<void*>(at)).count(self.current_device()) == 0)
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    std::memset(reinterpret_cast<void*>(at), value, bytes);
    return CUDA_SUCCESS;
  };
}

}  // namespace onehop
