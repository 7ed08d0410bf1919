// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onehop/error.h"

#include "memory/backend.h"
#include "memory/cuda_testing.h"
#include "support/errors.h"

namespace onehop {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kUnit = FakeCuda::kGranularity;

MemoryHandle copy(const MemoryHandle& handle) {
  return {.descriptor = os::UniqueFd(::fcntl(handle.descriptor.get(), F_DUPFD_CLOEXEC, 0)),
          .bytes = handle.bytes};
}

std::unique_ptr<MemoryBackend> make_backend(DeviceId device, Duration patience = kDefaultTimeout) {
  return make_cuda_backend(device, ShareBy::posix_fd, patience);
}

TEST(CudaBackend, MemoryIsZeroedRoundedUpAndReachableFromItsDeviceOnly) {
  FakeCuda cuda;
  const auto backend = make_backend(DeviceId{1});
  const Allocation mine = backend->create(100);
  EXPECT_EQ(backend->granularity(), kUnit);
  EXPECT_EQ(mine.block->bytes(), kUnit);
  EXPECT_EQ(mine.block->data()[0], std::byte{0});
  EXPECT_EQ(mine.block->data()[kUnit - 1], std::byte{0});
  EXPECT_THAT(cuda.access(mine.block->data()), ElementsAre(1));
  EXPECT_EQ(cuda.last_request().type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(cuda.last_request().location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(cuda.last_request().location.id, 1);
  EXPECT_EQ(cuda.last_request().allocFlags.gpuDirectRDMACapable, 1);
}

TEST(CudaBackend, NetworkAccessIsAskedForOnlyWhereTheDeviceCan) {
  FakeCuda cuda;
  cuda.attribute[CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED] = 0;
  (void)make_backend(DeviceId{0})->create(1);
  EXPECT_EQ(cuda.last_request().allocFlags.gpuDirectRDMACapable, 0);
}

TEST(CudaBackend, AnImportSeesWhatTheOwnerWrites) {
  FakeCuda cuda;
  const Allocation mine = make_backend(DeviceId{0})->create(100);
  const auto theirs = make_backend(DeviceId{1})->import(copy(mine.handle), 100);
  EXPECT_NE(theirs->data(), mine.block->data());
  EXPECT_THAT(cuda.access(theirs->data()), ElementsAre(1));
  mine.block->data()[99] = std::byte{7};
  EXPECT_EQ(theirs->data()[99], std::byte{7});
}

TEST(CudaBackend, DescriptorsAreClosedOnExec) {
  FakeCuda cuda;
  const Allocation mine = make_backend(DeviceId{0})->create(1);
  EXPECT_EQ(::fcntl(mine.handle.descriptor.get(), F_GETFD), FD_CLOEXEC);
}

TEST(CudaBackend, MemoryOutlivesItsHandleAndItsOwner) {
  FakeCuda cuda;
  const auto backend = make_backend(DeviceId{0});
  Allocation mine = backend->create(1);
  mine.block->data()[0] = std::byte{3};
  auto theirs = backend->import(std::move(mine.handle), 1);
  mine.block.reset();
  EXPECT_EQ(theirs->data()[0], std::byte{3});
  theirs.reset();
  EXPECT_EQ(cuda.living(), 0U);
  EXPECT_THAT(cuda.wrongs(), IsEmpty());
}

TEST(CudaBackend, AnAdoptedBlockIsReachedAtTheSameAddress) {
  FakeCuda cuda;
  const Allocation mine = make_backend(DeviceId{0})->create(1);
  make_backend(DeviceId{1})->adopt(*mine.block);
  EXPECT_THAT(cuda.access(mine.block->data()), ElementsAre(0, 1));
}

TEST(CudaBackend, OnlyMemoryOfAGpuCanBeAdopted) {
  FakeCuda cuda;
  const Allocation host = make_host_backend()->create(1);
  const Error error = error_of([&] { make_backend(DeviceId{1})->adopt(*host.block); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
}

TEST(CudaBackend, DevicesWithoutPeerAccessAreBothNamed) {
  FakeCuda cuda;
  cuda.peers = false;
  const Allocation mine = make_backend(DeviceId{0})->create(1);
  const auto other = make_backend(DeviceId{1});
  const std::size_t before = cuda.living();
  for (const Error& error : {error_of([&] { (void)other->import(copy(mine.handle), 1); }),
                             error_of([&] { other->adopt(*mine.block); })}) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.message(), HasSubstr("device 1 cannot reach memory of device 0"));
  }
  EXPECT_EQ(cuda.living(), before);
}

TEST(CudaBackend, RefusesNothingTooMuchForeignSizesAndForeignDescriptors) {
  FakeCuda cuda;
  const auto backend = make_backend(DeviceId{0});
  EXPECT_EQ(error_of([&] { (void)backend->create(0); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { (void)backend->create(SIZE_MAX); }).code(), ErrorCode::invalid_argument);
  const Allocation mine = backend->create(1);
  const std::size_t before = cuda.living();
  EXPECT_THAT(error_of([&] { (void)backend->import(copy(mine.handle), kUnit + 1); }).message(),
              HasSubstr("is the memory of this size?"));
  EXPECT_THAT(error_of([&] {
                (void)backend->import({.descriptor = os::UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC))},
                                      1);
              }).message(),
              HasSubstr("is it a descriptor of device memory?"));
  EXPECT_THAT(error_of([&] { (void)backend->import(MemoryHandle{}, 1); }).message(),
              HasSubstr("there is no descriptor"));
  EXPECT_EQ(cuda.living(), before);
}

TEST(CudaBackend, ADeviceWithoutVirtualMemoryIsRefused) {
  FakeCuda cuda;
  cuda.attribute[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 0;
  const auto backend = make_backend(DeviceId{0});
  EXPECT_EQ(error_of([&] { (void)backend->create(1); }).code(), ErrorCode::unsupported);
}

TEST(CudaBackend, MemoryThatABusyDeviceMayStillZeroIsKept) {
  FakeCuda cuda;
  cuda.busy = true;
  const auto backend = make_backend(DeviceId{0}, Duration{1});
  const Error error = error_of([&] { (void)backend->create(1); });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.message(), HasSubstr("device 0 did not zero 2M"));
  EXPECT_EQ(cuda.living(), 3U) << "the memory, its addresses, its mapping; the stream is gone";
}

TEST(CudaBackend, AFabricHandleTravelsAsBytesAndNeedsNoDescriptor) {
  FakeCuda cuda;
  cuda.fabric = true;
  const Allocation mine = make_cuda_backend(DeviceId{0}, ShareBy::fabric)->create(100);
  EXPECT_EQ(cuda.last_request().requestedHandleTypes, CU_MEM_HANDLE_TYPE_FABRIC);
  EXPECT_FALSE(mine.handle.descriptor);
  EXPECT_EQ(mine.handle.bytes.size(), 64U);
  const auto other = make_cuda_backend(DeviceId{1}, ShareBy::fabric);
  const auto theirs = other->import(copy(mine.handle), 100);
  EXPECT_THAT(cuda.access(theirs->data()), ElementsAre(1));
  mine.block->data()[99] = std::byte{7};
  EXPECT_EQ(theirs->data()[99], std::byte{7});
  other->adopt(*mine.block);
  EXPECT_THAT(cuda.access(mine.block->data()), ElementsAre(0, 1));
  const Error error = error_of([&] { (void)other->import({.bytes = "short"}, 100); });
  EXPECT_EQ(error.code(), ErrorCode::protocol);
  EXPECT_THAT(error.message(), HasSubstr("a peer's fabric handle has 5 bytes instead of 64"));
}

TEST(CudaBackend, MemoryThatTravelsAsADescriptorHasNoBytes) {
  FakeCuda cuda;
  const Allocation mine = make_backend(DeviceId{0})->create(1);
  EXPECT_EQ(cuda.last_request().requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(mine.handle.bytes, "");
}

TEST(CudaBackend, MustBeToldHowMemoryTravels) {
  FakeCuda cuda;
  const Error error = error_of([] { (void)make_cuda_backend(DeviceId{0}, ShareBy::automatic); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
}

TEST(CudaBackend, NothingLeaksWhicheverCallFails) {
  FakeCuda cuda;
  const auto backend = make_backend(DeviceId{0});
  const auto other = make_backend(DeviceId{1});
  fail_each_call(cuda, [&] { (void)backend->create(1); });
  const Allocation mine = backend->create(1);
  fail_each_call(cuda, [&] { (void)other->import(copy(mine.handle), 1); });
}

}  // namespace
}  // namespace onehop
