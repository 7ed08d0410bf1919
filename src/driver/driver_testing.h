// SPDX-License-Identifier: Apache-2.0
// A fake machine with GPUs for tests: tables of CUDA and NVML functions over plain data, which count acquired
// and released resources.
#pragma once

#include <fcntl.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "driver/cuda_driver.h"
#include "driver/nvml.h"

namespace onehop {

struct FakeLink {
  NvmlEnableState state = kNvmlEnabled;
  NvmlLinkEnd end = kNvmlLinkEndSwitch;
  std::string remote;  ///< PCI bus id, as NVML writes it
};

struct FakeGpu {
  std::string name = "NVIDIA H200";
  std::string uuid;    ///< "GPU-..."
  std::string bus_id;  ///< as NVML writes it
  int compute_capability = 90;
  std::size_t memory_bytes = std::size_t{140} << 30;
  std::map<int, int> attributes;  ///< CUdevice_attribute -> value; others are 0
  std::vector<FakeLink> links;
  NvmlFabricInfo fabric{};
  unsigned mig_mode = 0;
  bool nvml_knows = true;
};

/// At most one object exists at a time. The tables may be changed (a function replaced or set to nullptr)
/// during its lifetime.
class FakeMachine {
 public:
  std::vector<FakeGpu> gpus;
  /// Functions that fail, by name ("MemCreate", "DeviceGetGpuFabricInfoV"), with their error codes.
  std::map<std::string, int> failing;
  std::set<std::pair<int, int>> no_access;  ///< ordered pairs without peer access
  std::multiset<std::string> calls;  ///< calls of functions that acquire or release, and of NVML queries
  std::atomic<std::size_t> allocations = 0;  ///< live handles of cuMemCreate and imports
  std::atomic<std::size_t> reservations = 0;
  std::atomic<std::size_t> mappings = 0;
  std::atomic<std::size_t> plain_memory = 0;  ///< live allocations of cuMemAlloc
  bool needs_context = false;                 ///< cuMemCreate requires a current context
  CUmemAllocationProp last_request{};         ///< the last argument of cuMemCreate
  CudaDriver cuda;
  Nvml nvml;
  std::size_t last_request_bytes = 0;  ///< the last argument of cuMemCreate
  CUmemAllocationGranularity_flags last_granularity = CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;  ///< asked for

  FakeMachine() {
    current() = this;
    fill_cuda_devices();
    fill_cuda_memory();
    fill_nvml();
  }
  ~FakeMachine() { current() = nullptr; }
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  [[nodiscard]] std::size_t called(const std::string& name) const { return calls.count(name); }
  /// Whether all resources have been released.
  [[nodiscard]] bool clean() const {
    return allocations == 0 && reservations == 0 && mappings == 0 && plain_memory == 0;
  }

 private:
  static FakeMachine*& current() {
    static FakeMachine* machine = nullptr;
    return machine;
  }
  static FakeGpu& gpu(int device) { return current()->gpus.at(static_cast<std::size_t>(device)); }
  static FakeGpu& gpu(NvmlDevice device) { return *reinterpret_cast<FakeGpu*>(device); }
  static CUresult result(const char* name) {
    FakeMachine& machine = *current();
    const std::lock_guard lock(machine.mutex_);
    machine.calls.insert(name);
    const auto found = machine.failing.find(name);
    return found == machine.failing.end() ? CUDA_SUCCESS : static_cast<CUresult>(found->second);
  }
  static NvmlResult nvml_result(const char* name) { return static_cast<NvmlResult>(result(name)); }

  void fill_cuda_devices() {
    cuda.GetErrorName = [](CUresult code, const char** name) {
      *name = code == CUDA_ERROR_NOT_PERMITTED ? "CUDA_ERROR_NOT_PERMITTED" : "CUDA_ERROR_OTHER";
      return CUDA_SUCCESS;
    };
    cuda.GetErrorString = [](CUresult code, const char** text) {
      *text = code == CUDA_ERROR_NOT_PERMITTED ? "operation not permitted" : "other";
      return CUDA_SUCCESS;
    };
    cuda.DriverGetVersion = [](int* version) {
      *version = 12080;
      return result("DriverGetVersion");
    };
    cuda.DeviceGetCount = [](int* count) {
      *count = static_cast<int>(current()->gpus.size());
      return result("DeviceGetCount");
    };
    cuda.DeviceGet = [](CUdevice* device, int ordinal) {
      *device = ordinal;
      return result("DeviceGet");
    };
    cuda.DeviceGetName = [](char* text, int length, CUdevice device) {
      std::strncpy(text, gpu(device).name.c_str(), static_cast<std::size_t>(length));
      return result("DeviceGetName");
    };
    cuda.DeviceGetUuid = [](CUuuid* uuid, CUdevice device) {
      std::size_t at = 0;
      const std::string& text = gpu(device).uuid;
      for (std::size_t i = 4; i + 1 < text.size() && at < sizeof uuid->bytes; i += 2) {
        if (text[i] == '-') ++i;
        uuid->bytes[at++] = static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
      }
      return result("DeviceGetUuid");
    };
    cuda.DeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice device) {
      const FakeGpu& asked = gpu(device);
      const auto found = asked.attributes.find(attribute);
      *value = found == asked.attributes.end() ? 0 : found->second;
      if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) *value = asked.compute_capability / 10;
      if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) *value = asked.compute_capability % 10;
      return result("DeviceGetAttribute");
    };
    cuda.DeviceGetPCIBusId = [](char* text, int length, CUdevice device) {
      // The driver writes four digits of the domain.
      std::strncpy(text, gpu(device).bus_id.c_str() + 4, static_cast<std::size_t>(length));
      return result("DeviceGetPCIBusId");
    };
    cuda.DeviceTotalMem = [](std::size_t* bytes, CUdevice device) {
      *bytes = gpu(device).memory_bytes;
      return result("DeviceTotalMem");
    };
    cuda.DevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) {
      *context = reinterpret_cast<CUcontext>(&gpu(device));
      return result("DevicePrimaryCtxRetain");
    };
    cuda.CtxGetCurrent = [](CUcontext* context) {
      *context = current()->context_;
      return result("CtxGetCurrent");
    };
    cuda.CtxSetCurrent = [](CUcontext context) {
      current()->context_ = context;
      return result("CtxSetCurrent");
    };
    cuda.DeviceCanAccessPeer = [](int* can, CUdevice from, CUdevice to) {
      *can = from != to && !current()->no_access.contains({from, to}) ? 1 : 0;
      return result("DeviceCanAccessPeer");
    };
    cuda.DeviceGetP2PAttribute = [](int* value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to) {
      const bool rank = attribute == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
      *value = !rank && !current()->no_access.contains({from, to}) ? 1 : 0;
      return result("DeviceGetP2PAttribute");
    };
  }

  void fill_cuda_memory() {
    cuda.MemGetAllocationGranularity = [](std::size_t* bytes, const CUmemAllocationProp*,
                                          CUmemAllocationGranularity_flags which) {
      current()->last_granularity = which;
      *bytes = std::size_t{2} << 20;
      return result("MemGetAllocationGranularity");
    };
    cuda.MemCreate = [](CUmemGenericAllocationHandle* handle, std::size_t bytes,
                        const CUmemAllocationProp* request, unsigned long long) {
      current()->last_request = *request;
      current()->last_request_bytes = bytes;
      const CUresult outcome = result("MemCreate");
      if (current()->needs_context && current()->context_ == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
      if (outcome == CUDA_SUCCESS) *handle = ++current()->allocations;
      return outcome;
    };
    cuda.MemExportToShareableHandle = [](void* shareable, CUmemGenericAllocationHandle,
                                         CUmemAllocationHandleType type, unsigned long long) {
      const CUresult outcome = result("MemExportToShareableHandle");
      if (outcome == CUDA_SUCCESS && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        *static_cast<int*>(shareable) = ::open("/dev/null", O_RDWR | O_CLOEXEC);
      }
      return outcome;
    };
    cuda.MemImportFromShareableHandle = [](CUmemGenericAllocationHandle* handle, void*,
                                           CUmemAllocationHandleType) {
      const CUresult outcome = result("MemImportFromShareableHandle");
      if (outcome == CUDA_SUCCESS) *handle = ++current()->allocations;
      return outcome;
    };
    cuda.MemRelease = [](CUmemGenericAllocationHandle) {
      --current()->allocations;
      return result("MemRelease");
    };
    cuda.MemAddressReserve = [](CUdeviceptr* address, std::size_t, std::size_t, CUdeviceptr,
                                unsigned long long) {
      const CUresult outcome = result("MemAddressReserve");
      *address = 0x7f0000000000;
      if (outcome == CUDA_SUCCESS) ++current()->reservations;
      return outcome;
    };
    cuda.MemAddressFree = [](CUdeviceptr, std::size_t) {
      --current()->reservations;
      return result("MemAddressFree");
    };
    cuda.MemMap = [](CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle,
                     unsigned long long) {
      const CUresult outcome = result("MemMap");
      if (outcome == CUDA_SUCCESS) ++current()->mappings;
      return outcome;
    };
    cuda.MemUnmap = [](CUdeviceptr, std::size_t) {
      --current()->mappings;
      return result("MemUnmap");
    };
    cuda.MemSetAccess = [](CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) {
      return result("MemSetAccess");
    };
    cuda.MemAlloc = [](CUdeviceptr* address, std::size_t) {
      const CUresult outcome = result("MemAlloc");
      *address = 0x7e0000000000;
      if (outcome == CUDA_SUCCESS) ++current()->plain_memory;
      return outcome;
    };
    cuda.MemFree = [](CUdeviceptr) {
      --current()->plain_memory;
      return result("MemFree");
    };
    cuda.IpcGetMemHandle = [](CUipcMemHandle*, CUdeviceptr) { return result("IpcGetMemHandle"); };
  }

  void fill_nvml() {
    nvml.ErrorString = [](NvmlResult) { return "some text"; };
    nvml.SystemGetDriverVersion = [](char* text, unsigned length) {
      std::strncpy(text, "570.86.15", length);
      return nvml_result("SystemGetDriverVersion");
    };
    nvml.DeviceGetHandleByPciBusId_v2 = [](const char* bus_id, NvmlDevice* device) {
      for (FakeGpu& each : current()->gpus) {
        if (!each.nvml_knows || ::strcasecmp(each.bus_id.c_str(), bus_id) != 0) continue;
        *device = reinterpret_cast<NvmlDevice>(&each);
        return nvml_result("DeviceGetHandleByPciBusId_v2");
      }
      return kNvmlNotFound;
    };
    nvml.DeviceGetNvLinkState = [](NvmlDevice device, unsigned link, NvmlEnableState* state) {
      if (link >= gpu(device).links.size()) return kNvmlNotSupported;
      *state = gpu(device).links[link].state;
      return nvml_result("DeviceGetNvLinkState");
    };
    nvml.DeviceGetNvLinkRemoteDeviceType = [](NvmlDevice device, unsigned link, NvmlLinkEnd* end) {
      *end = gpu(device).links.at(link).end;
      return nvml_result("DeviceGetNvLinkRemoteDeviceType");
    };
    nvml.DeviceGetNvLinkRemotePciInfo_v2 = [](NvmlDevice device, unsigned link, NvmlPciInfo* info) {
      std::strncpy(info->bus_id, gpu(device).links.at(link).remote.c_str(), sizeof info->bus_id - 1);
      return nvml_result("DeviceGetNvLinkRemotePciInfo_v2");
    };
    nvml.DeviceGetGpuFabricInfo = [](NvmlDevice device, NvmlFabricInfo* info) {
      *info = gpu(device).fabric;
      return nvml_result("DeviceGetGpuFabricInfo");
    };
    nvml.DeviceGetGpuFabricInfoV = [](NvmlDevice device, NvmlFabricInfoV2* info) {
      if (info->version != kNvmlFabricInfoV2) return kNvmlInvalidArgument;
      const NvmlFabricInfo& fabric = gpu(device).fabric;
      std::memcpy(info->cluster_uuid, fabric.cluster_uuid, sizeof info->cluster_uuid);
      info->status = fabric.status;
      info->clique_id = fabric.clique_id;
      info->state = fabric.state;
      return nvml_result("DeviceGetGpuFabricInfoV");
    };
    nvml.DeviceGetMigMode = [](NvmlDevice device, unsigned* active, unsigned* pending) {
      *active = *pending = gpu(device).mig_mode;
      return nvml_result("DeviceGetMigMode");
    };
  }

  std::mutex mutex_;  ///< guards `calls`: threads may share one machine
  CUcontext context_ = nullptr;
};

/// Makes a machine visible to this process for the lifetime of this object.
struct ScopedMachine {
  explicit ScopedMachine(const FakeMachine& machine) : cuda(&machine.cuda), nvml(&machine.nvml) {}
  ScopedCudaDriver cuda;
  ScopedNvml nvml;
};

/// Four H200 behind an NVSwitch, as in tests/data/topology/h200x4.json: 18 links each, all into the switch.
/// The driver offers fabric handles but does not permit them, as on machines without IMEX channels.
inline void make_h200x4(FakeMachine& machine) {
  constexpr const char* kIdentities[4][2] = {
      {"GPU-3c6ef362-1a00-4b02-8c00-abcdef000200", "00000000:19:00.0"},
      {"GPU-c25abdcd-1a01-4b02-8c01-abcdef000201", "00000000:3B:00.0"},
      {"GPU-48468838-1a02-4b02-8c02-abcdef000202", "00000000:9B:00.0"},
      {"GPU-ce3252a3-1a03-4b02-8c03-abcdef000203", "00000000:BB:00.0"},
  };
  for (const auto& [uuid, bus_id] : kIdentities) {
    FakeGpu gpu;
    gpu.uuid = uuid;
    gpu.bus_id = bus_id;
    gpu.memory_bytes = 150754820096;
    gpu.attributes = {
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 1},
    };
    // Each NVSwitch has its own PCI function; which link leads to which is irrelevant.
    for (int link = 0; link < 18; ++link) {
      gpu.links.push_back(
          {kNvmlEnabled, kNvmlLinkEndSwitch, "00000000:0" + std::to_string(link % 4) + ":00.0"});
    }
    gpu.fabric.state = kNvmlFabricCompleted;
    machine.gpus.push_back(std::move(gpu));
  }
  machine.failing["MemCreate"] = CUDA_ERROR_NOT_PERMITTED;
}

}  // namespace onehop
