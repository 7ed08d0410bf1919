// SPDX-License-Identifier: Apache-2.0
#include "driver/cuda_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "driver/device.h"
#include "support/errors.h"

namespace onehop {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

/// A fake machine with two devices, as far as these tests need it.
CudaDriver two_devices() {
  CudaDriver fake;
  fake.GetErrorName = [](CUresult result, const char** name) {
    *name = result == CUDA_ERROR_NOT_PERMITTED ? "CUDA_ERROR_NOT_PERMITTED" : "CUDA_ERROR_OTHER";
    return CUDA_SUCCESS;
  };
  fake.GetErrorString = [](CUresult, const char** text) {
    *text = "operation not permitted";
    return CUDA_SUCCESS;
  };
  fake.DeviceGetCount = [](int* count) {
    *count = 2;
    return CUDA_SUCCESS;
  };
  fake.DeviceGet = [](CUdevice* device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
  };
  fake.DeviceGetUuid = [](CUuuid* uuid, CUdevice device) {
    for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(i * 16 + device);
    return CUDA_SUCCESS;
  };
  fake.DeviceGetPCIBusId = [](char* text, int length, CUdevice) {
    std::strncpy(text, "0000:9A:00.0", static_cast<std::size_t>(length));
    return CUDA_SUCCESS;
  };
  return fake;
}

TEST(CudaDriver, IsLookedForOnceAndSaysWhyItIsNotThere) {
  std::string why;
  const CudaDriver* const first = find_cuda_driver(&why);
  EXPECT_EQ(first == nullptr, !why.empty());
  EXPECT_EQ(find_cuda_driver(), first);
}

TEST(CudaDriver, WithoutOneEveryUseIsOneClearError) {
  const ScopedCudaDriver none(nullptr, "no NVIDIA driver on this machine: libcuda.so.1 not found");
  EXPECT_EQ(cuda_device_count(), 0);
  const Error error = error_of([] { require_cuda_device(DeviceId{0}); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.message(), HasSubstr("libcuda.so.1 not found"));
}

TEST(CudaDriver, DevicesAreCheckedAgainstTheCount) {
  const CudaDriver fake = two_devices();
  const ScopedCudaDriver scope(&fake);
  EXPECT_EQ(cuda_device_count(), 2);
  EXPECT_NO_THROW(require_cuda_device(DeviceId{1}));
  for (const int bad : {-1, 2, 1000}) {
    const Error error = error_of([&] { require_cuda_device(DeviceId{bad}); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.message(), HasSubstr(std::to_string(bad)));
    EXPECT_THAT(error.message(), HasSubstr("sees 2 GPUs"));
  }
}

TEST(CudaDriver, WritesIdentitiesAsNvmlDoes) {
  const CudaDriver fake = two_devices();
  const ScopedCudaDriver scope(&fake);
  EXPECT_EQ(cuda_uuid(DeviceId{1}), "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1");
  EXPECT_EQ(cuda_pci_bus_id(DeviceId{0}), "00000000:9a:00.0");
}

TEST(CudaDriver, ErrorsNameTheCallTheCodeAndTheText) {
  const CudaDriver fake = two_devices();
  const ScopedCudaDriver scope(&fake);
  const Error error = error_of([] { check_cuda(CUDA_ERROR_NOT_PERMITTED, "cuMemCreate"); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_EQ(error.message(), "cuMemCreate: CUDA_ERROR_NOT_PERMITTED (800): operation not permitted");
  EXPECT_EQ(error_of([] { check_cuda(CUDA_ERROR_ILLEGAL_ADDRESS, "cuLaunchKernelEx"); }).code(),
            ErrorCode::driver);
}

}  // namespace
}  // namespace onehop
