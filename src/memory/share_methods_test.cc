// SPDX-License-Identifier: Apache-2.0
#include "memory/share_methods.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onehop/error.h"

#include "memory/cuda_testing.h"
#include "support/errors.h"

namespace onehop {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

constexpr DeviceId kDevice{1};

TEST(ShareMethods, AreFoundOutByTrying) {
  FakeCuda cuda;
  cuda.fabric = true;
  const ShareMethods usable = share_methods(kDevice, ShareBy::automatic);
  for (const ShareBy share_by : {ShareBy::posix_fd, ShareBy::fabric, ShareBy::ipc})
    EXPECT_TRUE(usable.has(share_by));
  EXPECT_THAT(usable.fabric, HasSubstr("clique 0 of cluster 00000000-"));
  EXPECT_EQ(cuda.living(), 0U);
  EXPECT_EQ(cuda.creations(), 2);
  (void)share_methods(kDevice, ShareBy::automatic);
  EXPECT_EQ(cuda.creations(), 2) << "found out once";
}

TEST(ShareMethods, LackFabricHandlesWhereTheyAreNotPermitted) {
  FakeCuda cuda;
  const ShareMethods usable = share_methods(kDevice, ShareBy::automatic);
  EXPECT_FALSE(usable.has(ShareBy::fabric));
  EXPECT_TRUE(usable.has(ShareBy::posix_fd));
  EXPECT_EQ(usable.fabric, "");
}

TEST(ShareMethods, IncludeCudaIpcForADeviceWithoutVirtualMemoryManagementOrDescriptors) {
  for (const CUdevice_attribute missing : {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                           CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED}) {
    FakeCuda cuda;
    cuda.attribute[missing] = 0;
    const ShareMethods usable = share_methods(kDevice, ShareBy::automatic);
    EXPECT_FALSE(usable.has(ShareBy::posix_fd));
    EXPECT_TRUE(usable.has(ShareBy::ipc));
  }
}

TEST(ShareMethods, IncludeCudaIpcWhereTheKernelDoesNotPassDescriptors) {
  FakeCuda cuda;
  cuda.passable = false;
  const ShareMethods usable = share_methods(kDevice, ShareBy::automatic);
  EXPECT_FALSE(usable.has(ShareBy::posix_fd));
  EXPECT_TRUE(usable.has(ShareBy::ipc));
  EXPECT_EQ(cuda.living(), 0U);
}

TEST(ShareMethods, MayBeNone) {
  FakeCuda cuda;
  cuda.attribute[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 0;
  cuda.attribute[CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED] = 0;
  EXPECT_EQ(share_methods(kDevice, ShareBy::automatic), ShareMethods{});
}

TEST(ShareMethods, ARequestedTypeIsTheOnlyOneTried) {
  FakeCuda cuda;
  cuda.fabric = true;
  const ShareMethods usable = share_methods(kDevice, ShareBy::posix_fd);
  EXPECT_TRUE(usable.has(ShareBy::posix_fd));
  EXPECT_FALSE(usable.has(ShareBy::fabric));
  EXPECT_EQ(cuda.fabric_queries(), 0);
}

TEST(ShareMethods, ARequestedTypeThatDoesNotWorkIsAnErrorWithTheReason) {
  FakeCuda cuda;
  cuda.attribute[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 0;
  cuda.attribute[CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED] = 0;
  const std::pair<ShareBy, const char*> rows[] = {
      {ShareBy::posix_fd,
       "device 1 cannot share memory by 'fd': the device has no virtual memory management"},
      {ShareBy::fabric, "device 1 cannot share memory by 'fabric': cuMemCreate: CUDA_ERROR_FAKE"},
      {ShareBy::ipc, "device 1 cannot share memory by 'ipc': the driver does not support it"},
  };
  for (const auto& [share_by, text] : rows) {
    const Error error = error_of([&, share_by = share_by] { (void)share_methods(kDevice, share_by); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.message(), HasSubstr(text));
    EXPECT_THAT(error.message(), HasSubstr("ONEHOP_SHARE=auto"));
  }
}

}  // namespace
}  // namespace onehop
