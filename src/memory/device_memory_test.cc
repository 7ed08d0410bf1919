// SPDX-License-Identifier: Apache-2.0
#include "onehop/device_memory.h"

#include <fcntl.h>

#include "onehop/peer_access.h"

#include "memory/cuda_testing.h"
#include "support/errors.h"

namespace onehop {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(DeviceMemory, IsAsLargeAsAskedForAndItsDevicesOnly) {
  FakeCuda cuda;
  const DeviceMemory memory = DeviceMemory::create(DeviceId{1}, 1000);
  EXPECT_EQ(memory.bytes(), 1000U);
  EXPECT_EQ(memory.device(), DeviceId{1});
  EXPECT_EQ(memory.data()[999], std::byte{0});
  EXPECT_TRUE(memory.granted(DeviceId{1}));
  EXPECT_FALSE(memory.granted(DeviceId{0}));
}

TEST(DeviceMemory, IsGrantedToChosenPeersOnly) {
  FakeCuda cuda;
  cuda.devices = 3;
  const DeviceMemory memory = DeviceMemory::create(DeviceId{0}, 1);
  memory.grant(DeviceId{2});
  memory.grant(DeviceId{2});
  EXPECT_THAT(cuda.access(memory.data()), ElementsAre(0, 2));
  EXPECT_TRUE(memory.granted(DeviceId{2}));
  EXPECT_FALSE(memory.granted(DeviceId{1}));
  EXPECT_EQ(error_of([&] { memory.grant(DeviceId{3}); }).code(), ErrorCode::invalid_argument);
  cuda.peers = false;
  EXPECT_THAT(error_of([&] { memory.grant(DeviceId{1}); }).message(),
              HasSubstr("device 1 cannot reach memory of device 0"));
}

TEST(DeviceMemory, TravelsAsADescriptorThatTheCallerOwns) {
  FakeCuda cuda;
  {
    const DeviceMemory mine = DeviceMemory::create(DeviceId{0}, 10);
    const os::UniqueFd fd(mine.export_fd());
    EXPECT_EQ(::fcntl(fd.get(), F_GETFD), FD_CLOEXEC);
    const DeviceMemory theirs = DeviceMemory::import_fd(fd.get(), 10, DeviceId{1});
    EXPECT_GE(::fcntl(fd.get(), F_GETFD), 0) << "the import left the descriptor to its owner";
    EXPECT_EQ(theirs.bytes(), 10U);
    EXPECT_EQ(theirs.device(), DeviceId{1});
    mine.data()[9] = std::byte{5};
    EXPECT_EQ(theirs.data()[9], std::byte{5});
    EXPECT_EQ(error_of([&] { (void)mine.export_fabric(); }).code(), ErrorCode::invalid_argument);
  }
  EXPECT_EQ(cuda.living(), 0U);
  EXPECT_THAT(cuda.wrongs(), IsEmpty());
}

TEST(DeviceMemory, TravelsAsAFabricHandleWherePermitted) {
  FakeCuda cuda;
  const DeviceMemoryOptions by_fabric{.share_by = ShareBy::fabric};
  const Error refused = error_of([&] { (void)DeviceMemory::create(DeviceId{0}, 10, by_fabric); });
  EXPECT_EQ(refused.code(), ErrorCode::unsupported);
  EXPECT_THAT(refused.message(), HasSubstr("ShareBy::posix_fd needs none"));
  EXPECT_EQ(cuda.living(), 0U);

  cuda.fabric = true;
  const DeviceMemory mine = DeviceMemory::create(DeviceId{0}, 10, by_fabric);
  const DeviceMemory theirs = DeviceMemory::import_fabric(mine.export_fabric(), 10, DeviceId{1});
  mine.data()[9] = std::byte{5};
  EXPECT_EQ(theirs.data()[9], std::byte{5});
  EXPECT_EQ(error_of([&] { (void)mine.export_fd(); }).code(), ErrorCode::invalid_argument);

  cuda.attribute[CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED] = 0;
  EXPECT_THAT(error_of([&] { (void)DeviceMemory::create(DeviceId{0}, 10, by_fabric); }).message(),
              HasSubstr("has no fabric handles; use ShareBy::posix_fd"));
}

constexpr unsigned kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
constexpr unsigned kFabric = CU_MEM_HANDLE_TYPE_FABRIC;

TEST(DeviceMemory, HasBothHandleTypesByDefaultWhereFabricHandlesWork) {
  FakeCuda cuda;
  cuda.fabric = true;
  const DeviceMemory mine = DeviceMemory::create(DeviceId{0}, 10);
  EXPECT_EQ(cuda.last_request().requestedHandleTypes, kDescriptor | kFabric);
  mine.data()[9] = std::byte{5};
  const os::UniqueFd fd(mine.export_fd());
  EXPECT_EQ(DeviceMemory::import_fd(fd.get(), 10, DeviceId{1}).data()[9], std::byte{5});
  EXPECT_EQ(DeviceMemory::import_fabric(mine.export_fabric(), 10, DeviceId{1}).data()[9], std::byte{5});
  (void)DeviceMemory::create(DeviceId{0}, 10);
  EXPECT_EQ(cuda.fabric_queries(), 1) << "found out once per device";
}

TEST(DeviceMemory, ANoAboutTheFabricIsForgottenByAReset) {
  FakeCuda cuda;
  (void)DeviceMemory::create(DeviceId{0}, 10);
  cuda.fabric = true;  // IMEX has been started
  (void)DeviceMemory::create(DeviceId{0}, 10);
  EXPECT_EQ(cuda.last_request().requestedHandleTypes, kDescriptor) << "found out once";
  PeerAccess::of_process().reset(cuda.devices);
  (void)DeviceMemory::create(DeviceId{0}, 10);
  EXPECT_EQ(cuda.last_request().requestedHandleTypes, kDescriptor | kFabric);
}

TEST(DeviceMemory, IsNotForCudaIpc) {
  FakeCuda cuda;
  const Error error =
      error_of([] { (void)DeviceMemory::create(DeviceId{0}, 1, {.share_by = ShareBy::ipc}); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("see export_ipc"));
}

/// By default memory has a descriptor and no fabric handle.
void expect_descriptor_only(const FakeCuda& cuda) {
  const DeviceMemory memory = DeviceMemory::create(DeviceId{0}, 10);
  EXPECT_EQ(cuda.last_request().requestedHandleTypes, kDescriptor);
  EXPECT_TRUE(os::UniqueFd(memory.export_fd()));
  const Error error = error_of([&] { (void)memory.export_fabric(); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("has no fabric handle"));
}

TEST(DeviceMemory, TravelsAsADescriptorWhereTheDriverOffersNoFabricHandles) {
  FakeCuda cuda;
  cuda.fabric = true;
  cuda.attribute[CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED] = 0;
  expect_descriptor_only(cuda);
  EXPECT_EQ(cuda.fabric_queries(), 0);
}

TEST(DeviceMemory, TravelsAsADescriptorWhereFabricHandlesAreOfferedAndNotPermitted) {
  FakeCuda cuda;
  ::testing::internal::CaptureStderr();
  expect_descriptor_only(cuda);
  expect_descriptor_only(cuda);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "not worth a warning";
  EXPECT_EQ(cuda.creations(), 3) << "one in vain, and none for the second memory";
}

TEST(DeviceMemory, TravelsAsADescriptorWhereTheFabricIsNotReady) {
  FakeCuda cuda;
  cuda.fabric = true;
  cuda.fabric_state = kNvmlFabricInProgress;
  expect_descriptor_only(cuda);
  EXPECT_EQ(cuda.creations(), 1);
}

TEST(DeviceMemory, TravelsAsADescriptorWhereNvmlIsMissing) {
  FakeCuda cuda;
  cuda.fabric = true;
  const ScopedNvml none(nullptr, "NVML cannot be loaded");
  expect_descriptor_only(cuda);
}

TEST(DeviceMemory, CreatedForADescriptorDoesNotQueryTheFabric) {
  FakeCuda cuda;
  cuda.fabric = true;
  (void)DeviceMemory::create(DeviceId{0}, 10, {.share_by = ShareBy::posix_fd});
  EXPECT_EQ(cuda.last_request().requestedHandleTypes, kDescriptor);
  EXPECT_EQ(cuda.fabric_queries(), 0);
  EXPECT_EQ(cuda.creations(), 1);
}

TEST(DeviceMemory, OfADeviceThatThisProcessDoesNotSeeCanBeImported) {
  FakeCuda cuda;
  cuda.devices = 4;
  const DeviceMemory mine = DeviceMemory::create(DeviceId{3}, 1);
  const os::UniqueFd fd(mine.export_fd());
  cuda.devices = 1;
  cuda.peers = false;  // device 3 must not be queried
  const DeviceMemory theirs = DeviceMemory::import_fd(fd.get(), 1, DeviceId{0});
  EXPECT_THAT(cuda.access(theirs.data()), ElementsAre(0));
}

TEST(DeviceMemory, CopiesShareTheMappingAndTheLastUnmapsIt) {
  FakeCuda cuda;
  DeviceMemory first = DeviceMemory::create(DeviceId{0}, 1);
  {
    const DeviceMemory second = first;
    EXPECT_EQ(second.data(), first.data());
  }
  EXPECT_THAT(cuda.access(first.data()), ElementsAre(0));
  {
    const DeviceMemory moved = std::move(first);
    EXPECT_EQ(error_of([&] { (void)first.data(); }).code(),  // NOLINT(bugprone-use-after-move)
              ErrorCode::invalid_argument);
  }
  EXPECT_EQ(cuda.living(), 0U);
}

TEST(DeviceMemory, LeaksNothingWhicheverCallFails) {
  FakeCuda cuda;
  cuda.fabric = true;
  const DeviceMemory mine = DeviceMemory::create(DeviceId{0}, 1);
  fail_each_call(cuda, [&] { (void)DeviceMemory::create(DeviceId{1}, 1); });
  fail_each_call(cuda, [&] {
    const DeviceMemory memory = DeviceMemory::create(DeviceId{0}, 1, {.share_by = ShareBy::fabric});
    const DeviceMemory theirs = DeviceMemory::import_fabric(memory.export_fabric(), 1, DeviceId{1});
  });
  fail_each_call(cuda, [&] {
    const os::UniqueFd fd(mine.export_fd());
    const DeviceMemory theirs = DeviceMemory::import_fd(fd.get(), 1, DeviceId{1});
    theirs.grant(DeviceId{0});
    (void)theirs.granted(DeviceId{0});
  });
}

}  // namespace
}  // namespace onehop
