// SPDX-License-Identifier: Apache-2.0
#include "memory/share_ways.h"

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

TEST(ShareWays, AreFoundOutByTrying) {
  FakeCuda cuda;
  cuda.fabric = true;
  const ShareWays ways = share_ways(kDevice, ShareBy::automatic);
  for (const ShareBy way : {ShareBy::posix_fd, ShareBy::fabric, ShareBy::ipc}) EXPECT_TRUE(ways.has(way));
  EXPECT_THAT(ways.fabric, HasSubstr("clique 0 of cluster 00000000-"));
  EXPECT_EQ(cuda.living(), 0U);
  EXPECT_EQ(cuda.creations(), 2);
  (void)share_ways(kDevice, ShareBy::automatic);
  EXPECT_EQ(cuda.creations(), 2) << "found out once";
}

TEST(ShareWays, LackFabricHandlesWhereTheyAreNotPermitted) {
  FakeCuda cuda;
  const ShareWays ways = share_ways(kDevice, ShareBy::automatic);
  EXPECT_FALSE(ways.has(ShareBy::fabric));
  EXPECT_TRUE(ways.has(ShareBy::posix_fd));
  EXPECT_EQ(ways.fabric, "");
}

TEST(ShareWays, LeaveCudaIpcToADeviceWithoutVirtualMemoryManagementOrDescriptors) {
  for (const CUdevice_attribute missing : {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                           CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED}) {
    FakeCuda cuda;
    cuda.attribute[missing] = 0;
    const ShareWays ways = share_ways(kDevice, ShareBy::automatic);
    EXPECT_FALSE(ways.has(ShareBy::posix_fd));
    EXPECT_TRUE(ways.has(ShareBy::ipc));
  }
}

TEST(ShareWays, LeaveCudaIpcWhereTheKernelDoesNotGiveDescriptorsBack) {
  FakeCuda cuda;
  cuda.passable = false;
  const ShareWays ways = share_ways(kDevice, ShareBy::automatic);
  EXPECT_FALSE(ways.has(ShareBy::posix_fd));
  EXPECT_TRUE(ways.has(ShareBy::ipc));
  EXPECT_EQ(cuda.living(), 0U);
}

TEST(ShareWays, MayBeNone) {
  FakeCuda cuda;
  cuda.attribute[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 0;
  cuda.attribute[CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED] = 0;
  EXPECT_EQ(share_ways(kDevice, ShareBy::automatic), ShareWays{});
}

TEST(ShareWays, OneThatIsNamedIsTriedAlone) {
  FakeCuda cuda;
  cuda.fabric = true;
  const ShareWays ways = share_ways(kDevice, ShareBy::posix_fd);
  EXPECT_TRUE(ways.has(ShareBy::posix_fd));
  EXPECT_FALSE(ways.has(ShareBy::fabric));
  EXPECT_EQ(cuda.fabric_queries(), 0);
}

TEST(ShareWays, OneThatIsNamedAndDoesNotWorkIsAnErrorWithTheReason) {
  FakeCuda cuda;
  cuda.attribute[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 0;
  cuda.attribute[CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED] = 0;
  const std::pair<ShareBy, const char*> rows[] = {
      {ShareBy::posix_fd,
       "device 1 cannot share memory by 'fd': the device has no virtual memory management"},
      {ShareBy::fabric, "device 1 cannot share memory by 'fabric': cuMemCreate: CUDA_ERROR_FAKE"},
      {ShareBy::ipc, "device 1 cannot share memory by 'ipc': the driver does not support it"},
  };
  for (const auto& [way, text] : rows) {
    const Error error = error_of([&, way = way] { (void)share_ways(kDevice, way); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.message(), HasSubstr(text));
    EXPECT_THAT(error.message(), HasSubstr("ONEHOP_SHARE=auto"));
  }
}

}  // namespace
}  // namespace onehop
