// SPDX-License-Identifier: Apache-2.0
#include "memory/user_pointer.h"

#include <vector>

#include "base/check.h"
#include "memory/cuda_testing.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kBytes = FakeCuda::kGranularity;
constexpr DeviceId kHere{0};

std::string wrong(const void* data, std::size_t bytes = 4) {
  return describe_wrong_pointer(data, bytes, kHere, {});
}
PointerError pointer_error(const void* data, std::size_t bytes = 4) {
  return check_pointer(data, bytes, kHere, {});
}

TEST(UserPointer, WhatKernelsOfTheDeviceCanUsePasses) {
  FakeCuda cuda;
  const std::vector<FakeCuda::Memory> usable = {
      {},
      {.vmm = true, .ipc = false},
      {.pool = true, .vmm = true, .ipc = false},
      {.ipc = false},
      {.device = 1, .managed = true, .ipc = false},
      {.type = CU_MEMORYTYPE_HOST, .ipc = false},
  };
  for (const FakeCuda::Memory& each : usable) {
    const std::byte* const data = cuda.add_memory(each);
    for (const std::size_t at : {std::size_t{0}, std::size_t{1}, kBytes / 2, kBytes - 4}) {
      EXPECT_EQ(wrong(data + at, kBytes - at), "");
      EXPECT_EQ(pointer_error(data + at, kBytes - at), PointerError::none);
    }
  }
}

TEST(UserPointer, HostMemoryIsNamedAsWhatItIs) {
  FakeCuda cuda;
  const int local = 0;
  for (const void* const data : {static_cast<const void*>(&local), static_cast<const void*>(nullptr)}) {
    EXPECT_EQ(pointer_error(data), PointerError::not_gpu_memory);
    EXPECT_THAT(wrong(data), AllOf(HasSubstr("is host memory"), HasSubstr("memory of GPU 0 is needed")));
  }
}

TEST(UserPointer, MemoryOfAnotherGpuIsNamedWithBoth) {
  FakeCuda cuda;
  const std::byte* const data = cuda.add_memory({.device = 1});
  EXPECT_EQ(pointer_error(data), PointerError::other_gpu);
  EXPECT_EQ(check_pointer(data, 4, DeviceId{1}, {}), PointerError::none);
  EXPECT_THAT(wrong(data), HasSubstr("is memory of GPU 1; memory of GPU 0 is needed"));
}

TEST(UserPointer, FreedMemoryIsNeverTakenForWhatItWas) {
  FakeCuda cuda;
  std::byte* const data = cuda.add_memory({});
  EXPECT_EQ(pointer_error(data), PointerError::none);
  cuda.remove_memory(data);
  EXPECT_EQ(pointer_error(data), PointerError::not_gpu_memory);
  EXPECT_THAT(wrong(data), HasSubstr("was freed"));
  cuda.reuse_address(data, {.device = 1});
  EXPECT_EQ(pointer_error(data), PointerError::other_gpu);
  cuda.reuse_address(data, {});
  EXPECT_EQ(pointer_error(data), PointerError::none);
}

TEST(UserPointer, MemoryThatEndsTooEarlyIsNamedWithItsEnd) {
  FakeCuda cuda;
  std::byte* const data = cuda.add_memory({});
  EXPECT_EQ(pointer_error(data + 1000, kBytes - 999), PointerError::too_short);
  EXPECT_THAT(wrong(data + 1000, kBytes),
              HasSubstr(fmt::format("has {} bytes up to the end of its allocation; "
                                    "{} are needed",
                                    kBytes - 1000, kBytes)));
  EXPECT_EQ(pointer_error(data, std::size_t{1} << 56), PointerError::too_short);
}

TEST(UserPointer, AdjacentAllocationsAreOneMemoryIfAllAreOfTheDevice) {
  FakeCuda cuda;
  std::byte* const data = cuda.add_memory({.bytes = 2 * kBytes, .vmm = true, .ipc = false});
  cuda.reuse_address(data, {.vmm = true, .ipc = false});
  cuda.reuse_address(data + kBytes, {.vmm = true, .ipc = false});
  EXPECT_EQ(pointer_error(data + 100, 2 * kBytes - 100), PointerError::none);
  EXPECT_EQ(pointer_error(data + 100, 2 * kBytes - 99), PointerError::too_short);
  cuda.reuse_address(data + kBytes, {.device = 1, .vmm = true, .ipc = false});
  EXPECT_EQ(pointer_error(data + 100, 2 * kBytes - 100), PointerError::too_short);
  EXPECT_EQ(pointer_error(data + 100, kBytes - 100), PointerError::none);
}

TEST(UserPointer, WhatCudaDoesNotKnowYetPassesWhileAGraphIsCaptured) {
  FakeCuda cuda;
  const int memory_of_the_graph = 0;
  cuda.capturing = true;
  EXPECT_EQ(pointer_error(&memory_of_the_graph), PointerError::none);
  EXPECT_EQ(pointer_error(cuda.add_memory({.device = 1})), PointerError::other_gpu);
}

TEST(UserPointer, ADriverThatFailsRefusesNothing) {
  FakeCuda cuda;
  const int local = 0;
  const std::byte* const theirs = cuda.add_memory({.device = 1});
  for (const void* const data : {static_cast<const void*>(&local), static_cast<const void*>(theirs)}) {
    for (const int call : {1, 2}) {
      cuda.fail_call(call);
      EXPECT_EQ(pointer_error(data), PointerError::none) << cuda.failed();
      EXPECT_NE(cuda.failed(), "");
    }
    cuda.fail_call(0);
    EXPECT_NE(pointer_error(data), PointerError::none);
  }
}

TEST(UserPointer, TheDriverIsAskedOnceWhereAllIsWell) {
  FakeCuda cuda;
  const std::byte* const data = cuda.add_memory({});
  EXPECT_EQ(pointer_error(data, kBytes), PointerError::none);
  EXPECT_EQ(cuda.pointer_queries(), 1);
}

}  // namespace
}  // namespace onehop
