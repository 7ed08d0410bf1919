// SPDX-License-Identifier: Apache-2.0
// Memory of real GPUs, where fakes prove nothing. The examples show sharing between processes.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "onehop/device_memory.h"

#include "memory/backend.h"

namespace onehop {
namespace {

using ::testing::HasSubstr;

/// Every call here ends by itself: copies and allocations of a few megabytes, no kernels that wait.
class CudaMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cudaGetDeviceCount(&gpus_) != cudaSuccess || gpus_ == 0) GTEST_SKIP() << "needs a GPU";
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  }
  static std::vector<unsigned char> read(const std::byte* from, std::size_t bytes) {
    std::vector<unsigned char> out(bytes, 0xcd);
    EXPECT_EQ(cudaMemcpy(out.data(), from, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    return out;
  }
  static void write(std::byte* to, unsigned char value, std::size_t bytes) {
    const std::vector<unsigned char> in(bytes, value);
    EXPECT_EQ(cudaMemcpy(to, in.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  }
  static bool all(const std::vector<unsigned char>& bytes, unsigned char value) {
    return std::all_of(bytes.begin(), bytes.end(), [&](unsigned char each) { return each == value; });
  }
  int gpus_ = 0;
};

template <class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.message();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST_F(CudaMemory, IsZeroedAgainAndAgain) {
  const auto backend = make_cuda_backend(DeviceId{0}, ShareBy::posix_fd);
  for (int round = 0; round < 3; ++round) {
    const Allocation mine = backend->create((3 << 20) + 1);
    EXPECT_EQ(mine.block->bytes() % backend->granularity(), 0U);
    EXPECT_TRUE(all(read(mine.block->data(), mine.block->bytes()), 0));
    write(mine.block->data(), 0xab, mine.block->bytes());
  }
}

TEST_F(CudaMemory, IsSharedThroughItsDescriptor) {
  const auto backend = make_cuda_backend(DeviceId{0}, ShareBy::posix_fd);
  Allocation mine = backend->create(5000);
  auto theirs = backend->import(std::move(mine.handle), 5000);
  EXPECT_NE(theirs->data(), mine.block->data());
  write(mine.block->data(), 7, 5000);
  EXPECT_TRUE(all(read(theirs->data(), 5000), 7));
  mine.block.reset();
  EXPECT_TRUE(all(read(theirs->data(), 5000), 7)) << "it outlives its owner";
}

TEST_F(CudaMemory, OfAnotherSizeOrKindIsRefused) {
  const auto backend = make_cuda_backend(DeviceId{0}, ShareBy::posix_fd);
  Allocation mine = backend->create(1);
  EXPECT_THAT(message_of([&] { (void)backend->import(std::move(mine.handle), backend->granularity() + 1); }),
              HasSubstr("is the memory of this size?"));
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  ::close(pipe[1]);
  EXPECT_THAT(message_of([&] { (void)backend->import({.descriptor = os::UniqueFd(pipe[0])}, 1); }),
              HasSubstr("is it a descriptor of device memory?"));
  EXPECT_TRUE(all(read(backend->create(1).block->data(), 1), 0)) << "the device stays usable";
}

TEST_F(CudaMemory, OfOneProcessIsAdoptedByAnotherDevice) {
  if (gpus_ < 2) GTEST_SKIP() << "needs 2 GPUs";
  const DeviceMemory memory = DeviceMemory::create(DeviceId{0}, 100);
  EXPECT_TRUE(memory.granted(DeviceId{0}));
  EXPECT_FALSE(memory.granted(DeviceId{1}));
  memory.grant(DeviceId{1});
  EXPECT_TRUE(memory.granted(DeviceId{1}));
  EXPECT_TRUE(memory.granted(DeviceId{0})) << "a grant takes nothing from others";
  const Allocation block = make_cuda_backend(DeviceId{0}, ShareBy::posix_fd)->create(100);
  EXPECT_NO_THROW(make_cuda_backend(DeviceId{1}, ShareBy::posix_fd)->adopt(*block.block));
}

TEST_F(CudaMemory, FabricHandlesWorkOrSayWhyNot) {
  try {
    const DeviceMemory mine = DeviceMemory::create(DeviceId{0}, 100, {.share_by = ShareBy::fabric});
    const DeviceMemory theirs = DeviceMemory::import_fabric(mine.export_fabric(), 100, DeviceId{0});
    write(mine.data(), 9, 100);
    EXPECT_TRUE(all(read(theirs.data(), 100), 9));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.message(), HasSubstr("posix_fd"));
  }
}

TEST_F(CudaMemory, IsRecognizedByItsKind) {
  void* pointer = nullptr;
  ASSERT_EQ(cudaMalloc(&pointer, 1 << 20), cudaSuccess);
  EXPECT_EQ(memory_kind(pointer), MemoryKind::device);
  EXPECT_EQ(memory_kind(static_cast<std::byte*>(pointer) + 1000), MemoryKind::device);
  MemoryKind seen{};
  std::thread([&] { seen = memory_kind(pointer); }).join();
  EXPECT_EQ(seen, MemoryKind::device) << "on a thread without a context";
  ASSERT_EQ(cudaFree(pointer), cudaSuccess);

  ASSERT_EQ(cudaMallocManaged(&pointer, 4096), cudaSuccess);
  EXPECT_EQ(memory_kind(pointer), MemoryKind::managed);
  EXPECT_THAT(message_of([&] { (void)export_ipc(pointer, 1); }), HasSubstr("managed memory"));
  ASSERT_EQ(cudaFree(pointer), cudaSuccess);

  ASSERT_EQ(cudaMallocHost(&pointer, 4096), cudaSuccess);
  EXPECT_EQ(memory_kind(pointer), MemoryKind::pinned_host);
  ASSERT_EQ(cudaFreeHost(pointer), cudaSuccess);

  ASSERT_EQ(cudaMallocAsync(&pointer, 4096, nullptr), cudaSuccess);
  EXPECT_EQ(memory_kind(pointer), MemoryKind::pool);
  EXPECT_THAT(message_of([&] { (void)export_ipc(pointer, 1); }), HasSubstr("cudaMallocAsync"));
  ASSERT_EQ(cudaFreeAsync(pointer, nullptr), cudaSuccess);

  const DeviceMemory memory = DeviceMemory::create(DeviceId{0}, 1);
  EXPECT_EQ(memory_kind(memory.data()), MemoryKind::vmm);
  EXPECT_THAT(message_of([&] { (void)export_ipc(memory.data(), 1); }), HasSubstr("onehop::DeviceMemory"));

  EXPECT_EQ(memory_kind(&pointer), MemoryKind::host);
}

TEST_F(CudaMemory, OfThisProcessIsOpenedAsItself) {
  std::byte* pointer = nullptr;
  ASSERT_EQ(cudaMalloc(&pointer, 1000), cudaSuccess);
  const IpcHandle handle = export_ipc(pointer + 10, 990);
  EXPECT_EQ(handle.offset, 10U);
  EXPECT_GE(handle.allocation_bytes, 1000U);
  for (int device = 0; device < gpus_; ++device)
    EXPECT_EQ(IpcMapping::open(handle, DeviceId{device}).data(), pointer + 10);
  EXPECT_THAT(message_of([&] { (void)export_ipc(pointer + 10, handle.allocation_bytes - 9); }),
              HasSubstr("its allocation of"));
  ASSERT_EQ(cudaFree(pointer), cudaSuccess);
  EXPECT_THAT(message_of([&] { (void)IpcMapping::open(handle, DeviceId{0}); }),
              HasSubstr("not allocated any more"));
}

}  // namespace
}  // namespace onehop
