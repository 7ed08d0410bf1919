// SPDX-License-Identifier: Apache-2.0
// Devices, contexts, streams, and what NVML says.
#include "memory/cuda_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "onehop/error.h"

namespace onehop {

FakeCuda::FakeCuda() {
  current_ = this;
  fill_devices();
  fill_memory();
  fill_pointers();
  fill_ipc();
  fill_nvml();
}

void FakeCuda::fill_devices() {
  table_.GetErrorName = [](CUresult, const char** name) {
    *name = "CUDA_ERROR_FAKE";
    return CUDA_SUCCESS;
  };
  table_.GetErrorString = [](CUresult, const char** text) {
    *text = "made up";
    return CUDA_SUCCESS;
  };
  table_.DeviceGetCount = [](int* count) {
    *count = current_->devices;
    return CUDA_SUCCESS;
  };
  table_.DeviceGet = [](CUdevice* device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
  };
  table_.DeviceGetName = [](char* text, int length, CUdevice) {
    (void)std::snprintf(text, static_cast<std::size_t>(length), "made up");
    return CUDA_SUCCESS;
  };
  table_.DeviceGetUuid = [](CUuuid* uuid, CUdevice device) {
    std::memset(uuid->bytes, device + 1, sizeof uuid->bytes);
    return CUDA_SUCCESS;
  };
  table_.DeviceGetPCIBusId = [](char* text, int length, CUdevice device) {
    (void)std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
    return CUDA_SUCCESS;
  };
  table_.DeviceGetAttribute = [](int* value, CUdevice_attribute which, CUdevice) {
    ONEHOP_FAKE_STEP("cuDeviceGetAttribute");
    const auto known = self.attribute.find(which);
    *value = known == self.attribute.end() ? 1 : known->second;
    return CUDA_SUCCESS;
  };
  table_.DeviceCanAccessPeer = [](int* can, CUdevice, CUdevice) {
    ONEHOP_FAKE_STEP("cuDeviceCanAccessPeer");
    *can = self.peers ? 1 : 0;
    return CUDA_SUCCESS;
  };
  table_.DeviceGetP2PAttribute = [](int* value, CUdevice_P2PAttribute, CUdevice, CUdevice) {
    *value = 1;  // NVLink
    return CUDA_SUCCESS;
  };
  table_.DevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) {
    *context = reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device + 1));
    return CUDA_SUCCESS;
  };
  table_.CtxGetCurrent = [](CUcontext* context) {
    *context = current_->context_;
    return CUDA_SUCCESS;
  };
  table_.CtxSetCurrent = [](CUcontext context) {
    current_->context_ = context;
    return CUDA_SUCCESS;
  };
  table_.DevicePrimaryCtxGetState = [](CUdevice device, unsigned*, int* active) {
    ONEHOP_FAKE_STEP("cuDevicePrimaryCtxGetState");
    *active = device == 1 ? 1 : 0;
    return CUDA_SUCCESS;
  };
  table_.CtxEnablePeerAccess = [](CUcontext peer, unsigned) {
    ONEHOP_FAKE_STEP("cuCtxEnablePeerAccess");
    const auto other = static_cast<int>(reinterpret_cast<std::uintptr_t>(peer)) - 1;
    const bool first = self.enabled_.emplace(self.current_device(), other).second;
    return first ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  };
  table_.CtxDisablePeerAccess = [](CUcontext peer) {
    ONEHOP_FAKE_STEP("cuCtxDisablePeerAccess");
    const auto other = static_cast<int>(reinterpret_cast<std::uintptr_t>(peer)) - 1;
    const bool was = self.enabled_.erase({self.current_device(), other}) != 0;
    return was ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  };
  // Called by a group after its memory is mapped everywhere and before its kernels, which cannot be faked.
  table_.MemHostRegister = [](void*, std::size_t, unsigned) { return CUDA_ERROR_NOT_SUPPORTED; };
  table_.CtxSynchronize = [] { return CUDA_SUCCESS; };
  table_.StreamCreate = [](CUstream* stream, unsigned) {
    ONEHOP_FAKE_STEP("cuStreamCreate");
    ++self.streams_;
    *stream = reinterpret_cast<CUstream>(std::uintptr_t{1});
    return CUDA_SUCCESS;
  };
  table_.StreamDestroy = [](CUstream) {
    --current_->streams_;
    return CUDA_SUCCESS;
  };
  table_.StreamQuery = [](CUstream) {
    ONEHOP_FAKE_STEP("cuStreamQuery");
    return self.busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  };
}

void FakeCuda::fill_nvml() {
  nvml_.ErrorString = [](NvmlResult) { return "made up"; };
  nvml_.DeviceGetHandleByPciBusId_v2 = [](const char*, NvmlDevice* device) {
    *device = nullptr;
    return kNvmlSuccess;
  };
  nvml_.DeviceGetGpuFabricInfo = [](NvmlDevice, NvmlFabricInfo* info) {
    ++current_->fabric_queries_;
    *info = {};
    info->state = current_->fabric_state;
    return kNvmlSuccess;
  };
}

void fail_each_call(FakeCuda& cuda, const std::function<void()>& action) {
  const std::size_t before = cuda.living() + cuda.opened();
  int errors = 0;
  for (int call = 1; call < 100; ++call) {
    cuda.fail_call(call);
    try {
      action();
    } catch (const Error& error) {
      ++errors;
      EXPECT_THAT(error.message(), ::testing::HasSubstr("CUDA_ERROR_FAKE"));
      EXPECT_THAT(error.message(), ::testing::Not(::testing::HasSubstr("\n")));
    }
    const std::string failed = cuda.failed();
    cuda.fail_call(0);
    EXPECT_EQ(cuda.living() + cuda.opened(), before) << "after " << failed << " failed";
    EXPECT_THAT(cuda.wrongs(), ::testing::IsEmpty()) << "after " << failed << " failed";
    if (failed.empty()) break;
  }
  EXPECT_GT(errors, 3);
}

}  // namespace onehop
