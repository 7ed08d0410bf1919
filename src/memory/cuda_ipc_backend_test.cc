// SPDX-License-Identifier: Apache-2.0
#include "memory/cuda_ipc_backend.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onehop/device_memory.h"
#include "onehop/error.h"

#include "memory/cuda_testing.h"
#include "support/errors.h"

namespace onehop {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr std::size_t kUnit = FakeCuda::kGranularity;

std::unique_ptr<MemoryBackend> make_backend(int device, Duration patience = kDefaultTimeout) {
  return make_cuda_backend(DeviceId{device}, ShareBy::ipc, patience);
}

/// The handle as another process receives it: the pipe's end is a copy, and the handle names another process.
MemoryHandle sent(const MemoryHandle& handle) {
  return {.descriptor = os::UniqueFd(::fcntl(handle.descriptor.get(), F_DUPFD_CLOEXEC, 0)),
          .bytes = from_elsewhere(IpcHandle::from_bytes(handle.bytes)).to_bytes()};
}

TEST(CudaIpcBackend, MemoryIsZeroedAndSeenByThePeerThatOpensItsHandle) {
  FakeCuda cuda;
  const Allocation mine = make_backend(1)->create(100);
  EXPECT_EQ(mine.block->bytes(), kUnit) << "smaller ones would share a block";
  EXPECT_EQ(memory_kind(mine.block->data()), MemoryKind::device);
  EXPECT_EQ(mine.block->data()[kUnit - 1], std::byte{0});
  EXPECT_EQ(::fcntl(mine.handle.descriptor.get(), F_GETFD), FD_CLOEXEC);
  const auto theirs = make_backend(0)->import(sent(mine.handle), 100);
  EXPECT_NE(theirs->data(), mine.block->data());
  EXPECT_EQ(theirs->bytes(), kUnit);
  mine.block->data()[99] = std::byte{7};
  EXPECT_EQ(theirs->data()[99], std::byte{7});
  EXPECT_EQ(cuda.creations(), 0) << "no virtual memory management";
}

TEST(CudaIpcBackend, MemoryIsFreedWhenNoPeerMapsItAnyMore) {
  FakeCuda cuda;
  const auto owner = make_backend(0);
  Allocation mine = owner->create(1);
  auto theirs = make_backend(1)->import(sent(mine.handle), 1);
  mine.handle = {};
  mine.block.reset();
  EXPECT_EQ(cuda.allocated(), 1U) << "a peer maps it";
  theirs->data()[0] = std::byte{3};
  theirs.reset();
  EXPECT_EQ(cuda.opened(), 0U);
  (void)owner->create(1);
  EXPECT_EQ(cuda.allocated(), 0U);
  EXPECT_THAT(cuda.wrongs(), IsEmpty());
}

TEST(CudaIpcBackend, MemoryThatNobodyElseHasIsFreedAtOnce) {
  FakeCuda cuda;
  Allocation mine = make_backend(0)->create(1);
  { const auto theirs = make_backend(1)->import(sent(mine.handle), 1); }
  mine.handle = {};
  mine.block.reset();
  EXPECT_EQ(cuda.allocated(), 0U);
  EXPECT_THAT(cuda.wrongs(), IsEmpty());
}

TEST(CudaIpcBackend, AnAdoptedBlockIsReachedAtItsAddressThroughPeerAccess) {
  FakeCuda cuda;
  const Allocation mine = make_backend(0)->create(1);
  make_backend(1)->adopt(*mine.block);
  make_backend(0)->adopt(*mine.block);
  EXPECT_THAT(cuda.enabled(), UnorderedElementsAre(Pair(1, 0)));
  EXPECT_EQ(cuda.openings(), 0);
  const Allocation host = make_host_backend()->create(1);
  EXPECT_EQ(error_of([&] { make_backend(1)->adopt(*host.block); }).code(), ErrorCode::invalid_argument);
}

TEST(CudaIpcBackend, DevicesWithoutPeerAccessAreBothNamed) {
  FakeCuda cuda;
  cuda.peers = false;
  const Allocation mine = make_backend(0)->create(1);
  const auto other = make_backend(1);
  for (const Error& error : {error_of([&] { (void)other->import(sent(mine.handle), 1); }),
                             error_of([&] { other->adopt(*mine.block); })}) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.message(), HasSubstr("device 1 cannot reach memory of device 0"));
  }
}

TEST(CudaIpcBackend, RefusesForeignSizesAndHandlesThatAreNone) {
  FakeCuda cuda;
  const auto backend = make_backend(0);
  EXPECT_EQ(error_of([&] { (void)backend->create(0); }).code(), ErrorCode::invalid_argument);
  const Allocation mine = backend->create(1);
  EXPECT_THAT(error_of([&] { (void)backend->import(sent(mine.handle), kUnit + 1); }).message(),
              HasSubstr("for 2097152 bytes instead of 4194304"));
  EXPECT_EQ(error_of([&] { (void)backend->import({.bytes = "no handle"}, 1); }).code(), ErrorCode::protocol);
  MemoryHandle without_pipe = sent(mine.handle);
  without_pipe.descriptor.reset();
  EXPECT_THAT(error_of([&] { (void)backend->import(std::move(without_pipe), 1); }).message(),
              HasSubstr("its pipe is missing"));
  EXPECT_EQ(cuda.opened(), 0U);
}

TEST(CudaIpcBackend, MemoryThatCudaIpcCannotCarryIsAnError) {
  FakeCuda cuda;
  cuda.ipc_capable = false;
  const Error error = error_of([] { (void)make_backend(0)->create(1); });
  EXPECT_THAT(error.message(), HasSubstr("CUDA IPC cannot share"));
  EXPECT_EQ(cuda.allocated(), 0U);
}

TEST(CudaIpcBackend, MemoryThatABusyDeviceMayStillZeroIsKept) {
  FakeCuda cuda;
  cuda.busy = true;
  const Error error = error_of([] { (void)make_backend(0, Duration{1})->create(1); });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_EQ(cuda.allocated(), 1U);
}

TEST(CudaIpcBackend, NothingLeaksWhicheverCallFails) {
  FakeCuda cuda;
  const auto backend = make_backend(0);
  const auto other = make_backend(1);
  fail_each_call(cuda, [&] {
    const Allocation mine = backend->create(1);
    (void)other->import(sent(mine.handle), 1);
  });
}

}  // namespace
}  // namespace onehop
