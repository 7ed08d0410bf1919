// SPDX-License-Identifier: Apache-2.0
// Device memory, CUDA IPC and peer access through the C API, on a fake driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "onehop/c_api.h"

#include "c_api/c_api_ranks.h"
#include "memory/cuda_testing.h"

namespace onehop {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CApiFakeGpu, DeviceMemoryTravelsByDescriptorAndByFabricHandle) {
  FakeCuda cuda;
  cuda.fabric = true;
  onehop_device_memory_t* mine = nullptr;
  onehop_device_memory_t* theirs = nullptr;
  ASSERT_OK(onehop_device_memory_create(0, 1000, nullptr, &mine));
  EXPECT_EQ(onehop_device_memory_bytes(mine), 1000u);
  EXPECT_EQ(onehop_device_memory_device(mine), 0);
  auto* const data = static_cast<char*>(onehop_device_memory_data(mine));
  data[999] = 5;
  int fd = -1;
  ASSERT_OK(onehop_device_memory_export_fd(mine, &fd));
  ASSERT_OK(onehop_device_memory_import_fd(fd, 1000, 1, &theirs));
  ::close(fd);
  EXPECT_EQ(static_cast<char*>(onehop_device_memory_data(theirs))[999], 5);
  onehop_device_memory_destroy(theirs);
  std::array<unsigned char, ONEHOP_FABRIC_HANDLE_BYTES> handle{};
  ASSERT_OK(onehop_device_memory_export_fabric(mine, handle.data()));
  ASSERT_OK(onehop_device_memory_import_fabric(handle.data(), 1000, 1, &theirs));
  EXPECT_EQ(static_cast<char*>(onehop_device_memory_data(theirs))[999], 5);
  onehop_device_memory_destroy(theirs);
  int granted = -1;
  ASSERT_OK(onehop_device_memory_granted(mine, 1, &granted));
  EXPECT_EQ(granted, 0);
  ASSERT_OK(onehop_device_memory_grant(mine, 1));
  ASSERT_OK(onehop_device_memory_granted(mine, 1, &granted));
  EXPECT_EQ(granted, 1);
  EXPECT_THAT(cuda.access(data), ElementsAre(0, 1));
  onehop_device_memory_destroy(mine);
  EXPECT_EQ(cuda.living(), 0u);
  EXPECT_THAT(cuda.wrongs(), IsEmpty());
}

TEST(CApiFakeGpu, MemoryOfCudaMallocTravelsByItsHandle) {
  FakeCuda cuda;
  std::byte* const memory = cuda.add_memory({.device = 1});
  onehop_memory_kind_t kind = -1;
  ASSERT_OK(onehop_memory_kind(memory, &kind));
  EXPECT_EQ(kind, ONEHOP_MEMORY_KIND_DEVICE);
  char* handle = nullptr;
  std::size_t bytes = 0;
  ASSERT_OK(onehop_ipc_export(memory + 100, 50, &handle, &bytes));
  onehop_ipc_mapping_t* mapping = nullptr;
  ASSERT_OK(onehop_ipc_mapping_open(handle, bytes, 0, &mapping));
  EXPECT_EQ(onehop_ipc_mapping_data(mapping), memory + 100) << "of this process itself";
  EXPECT_EQ(onehop_ipc_mapping_bytes(mapping), 50u);
  onehop_ipc_mapping_destroy(mapping);
  onehop_free(handle);
}

TEST(CApiFakeGpu, PeerAccessIsEnabledByAskingAndCanBeTakenBack) {
  FakeCuda cuda;
  onehop_peer_access_t* access = nullptr;
  ASSERT_OK(onehop_peer_access_create(2, &access));
  int yes = -1;
  ASSERT_OK(onehop_peer_access_can_access(access, 0, 1, &yes));
  EXPECT_EQ(yes, 1);
  EXPECT_THAT(cuda.enabled(), ElementsAre(std::pair{0, 1}));
  EXPECT_OK(onehop_peer_access_disable(access, 1, 0));
  EXPECT_THAT(cuda.enabled(), ElementsAre(std::pair{0, 1})) << "the other direction has not been enabled";
  ASSERT_OK(onehop_peer_access_disable(access, 0, 1));
  EXPECT_THAT(cuda.enabled(), IsEmpty());
  EXPECT_OK(onehop_peer_access_disable(access, 0, 1));
  ASSERT_OK(onehop_peer_access_can_access(access, 0, 1, &yes));
  EXPECT_EQ(yes, 1);
  EXPECT_THAT(cuda.enabled(), ElementsAre(std::pair{0, 1})) << "again";
  EXPECT_EQ(onehop_peer_access_disable(access, 1, 1), ONEHOP_ERROR_INVALID_ARGUMENT);
  onehop_peer_access_destroy(access);
}

}  // namespace
}  // namespace onehop
