// SPDX-License-Identifier: Apache-2.0
#include "onehop/device_memory.h"
#include "onehop/peer_access.h"

#include "memory/cuda_testing.h"
#include "os/process_id.h"
#include "support/errors.h"

namespace onehop {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr std::size_t kBytes = FakeCuda::kGranularity;

TEST(MemoryKind, IsRecognized) {
  FakeCuda cuda;
  int local = 0;
  EXPECT_EQ(memory_kind(&local), MemoryKind::host);
  EXPECT_EQ(memory_kind(nullptr), MemoryKind::host);
  EXPECT_EQ(memory_kind(cuda.add_memory({.type = CU_MEMORYTYPE_HOST, .ipc = false})),
            MemoryKind::pinned_host);
  EXPECT_EQ(memory_kind(cuda.add_memory({.managed = true, .ipc = false})), MemoryKind::managed);
  EXPECT_EQ(memory_kind(cuda.add_memory({})), MemoryKind::device);
  EXPECT_EQ(memory_kind(cuda.add_memory({}) + kBytes - 1), MemoryKind::device);
  EXPECT_EQ(memory_kind(cuda.add_memory({.vmm = true, .ipc = false})), MemoryKind::vmm);
  EXPECT_EQ(memory_kind(cuda.add_memory({.pool = true, .vmm = true, .ipc = false})), MemoryKind::pool);
  EXPECT_EQ(memory_kind(cuda.add_memory({.ipc = false})), MemoryKind::other);
  EXPECT_EQ(cuda.living(), 0U) << "what was retained to find out is released";
  EXPECT_EQ(cuda.current_device(), -1) << "the caller's thread has its own context again: none";
}

TEST(MemoryKind, WithoutADriverEverythingIsHostMemory) {
  const ScopedCudaDriver none(nullptr, "no driver");
  int local = 0;
  EXPECT_EQ(memory_kind(&local), MemoryKind::host);
}

TEST(ExportIpc, NamesTheAllocationAndTheOffsetInIt) {
  FakeCuda cuda;
  std::byte* const base = cuda.add_memory({.device = 1});
  const IpcHandle handle = export_ipc(base + 100, 50);
  EXPECT_EQ(handle.process, os::process_id());
  EXPECT_EQ(handle.address, reinterpret_cast<std::uintptr_t>(base));
  EXPECT_EQ(handle.allocation_bytes, kBytes);
  EXPECT_EQ(handle.offset, 100U);
  EXPECT_EQ(handle.bytes, 50U);
  EXPECT_EQ(handle.device[0], 2) << "the UUID of device 1";
  EXPECT_EQ(IpcHandle::from_bytes(handle.to_bytes()), handle);
  EXPECT_NO_THROW((void)export_ipc(base, kBytes));
  EXPECT_THAT(error_of([&] { (void)export_ipc(base + 100, kBytes - 99); }).message(),
              HasSubstr("its allocation of 2097152 bytes ends 2097052 bytes after it"));
  EXPECT_EQ(error_of([&] { (void)export_ipc(base, 0); }).code(), ErrorCode::invalid_argument);
}

TEST(ExportIpc, SaysWhatCannotBeSharedAndWhatToUseInstead) {
  FakeCuda cuda;
  int local = 0;
  const auto refusal = [](const void* pointer) {
    const Error error = error_of([&] { (void)export_ipc(pointer, 1); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.message();
  };
  EXPECT_THAT(refusal(&local), HasSubstr("which is host memory"));
  EXPECT_THAT(refusal(cuda.add_memory({.managed = true})), HasSubstr("which is managed memory"));
  EXPECT_THAT(refusal(cuda.add_memory({.pool = true, .ipc = false})),
              HasSubstr("instead of cudaMallocAsync"));
  EXPECT_THAT(refusal(cuda.add_memory({.vmm = true, .ipc = false})),
              HasSubstr("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"));
  EXPECT_THAT(refusal(cuda.add_memory({.ipc = false})), HasSubstr("which is other memory"));
  EXPECT_EQ(cuda.living(), 0U);
}

TEST(IpcMapping, OpensAnAllocationOncePerDeviceAndClosesItWithTheLastUse) {
  FakeCuda cuda;
  std::byte* const base = cuda.add_memory({});
  const IpcHandle front = from_elsewhere(export_ipc(base, 10));
  const IpcHandle back = from_elsewhere(export_ipc(base + 1000, 20));
  {
    const IpcMapping first = IpcMapping::open(front, DeviceId{1});
    const IpcMapping second = IpcMapping::open(back, DeviceId{1});
    const IpcMapping copy = second;
    EXPECT_NE(first.data(), base);
    EXPECT_EQ(second.data() - first.data(), 1000);
    EXPECT_EQ(first.bytes(), 10U);
    EXPECT_EQ(copy.bytes(), 20U);
    EXPECT_EQ(cuda.openings(), 1);
    EXPECT_EQ(cuda.opened(), 1U);
    const IpcMapping elsewhere = IpcMapping::open(front, DeviceId{0});
    EXPECT_EQ(cuda.openings(), 2) << "each device has its own mapping";
  }
  EXPECT_EQ(cuda.opened(), 0U);
  EXPECT_THAT(cuda.wrongs(), IsEmpty());
  const IpcMapping again = IpcMapping::open(front, DeviceId{1});
  EXPECT_EQ(cuda.openings(), 3);
}

TEST(IpcMapping, OfThisProcessIsThePointerItselfWithPeerAccess) {
  FakeCuda cuda;
  std::byte* const base = cuda.add_memory({.device = 0});
  const IpcHandle handle = export_ipc(base + 64, 8);
  EXPECT_EQ(IpcMapping::open(handle, DeviceId{1}).data(), base + 64);
  EXPECT_EQ(IpcMapping::open(handle, DeviceId{1}).data(), base + 64) << "enabled already";
  EXPECT_EQ(IpcMapping::open(handle, DeviceId{0}).data(), base + 64);
  EXPECT_THAT(cuda.enabled(), UnorderedElementsAre(Pair(1, 0)));
  EXPECT_EQ(cuda.openings(), 0);

  cuda.remove_memory(base);
  EXPECT_THAT(error_of([&] { (void)IpcMapping::open(handle, DeviceId{1}); }).message(),
              HasSubstr("not allocated any more"));
}

TEST(IpcMapping, OfThisProcessSharesTheRecordOfPeerAccess) {
  FakeCuda cuda;
  const IpcHandle handle = export_ipc(cuda.add_memory({.device = 0}), 8);
  EXPECT_TRUE(PeerAccess::of_process().can_access(DeviceId{1}, DeviceId{0}));
  cuda.peers = false;  // the driver is not queried again
  EXPECT_NO_THROW((void)IpcMapping::open(handle, DeviceId{1}));
}

TEST(IpcMapping, OfThisProcessSaysWhenItIsOutOfReach) {
  FakeCuda cuda;
  cuda.peers = false;
  const IpcHandle handle = export_ipc(cuda.add_memory({.device = 0}), 8);
  const Error error = error_of([&] { (void)IpcMapping::open(handle, DeviceId{1}); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.message(), HasSubstr("device 1 cannot reach memory of device 0"));
  EXPECT_THAT(cuda.enabled(), IsEmpty());
}

TEST(IpcMapping, OfThisProcessBelievesNothingThatTheDriverDoesNotConfirm) {
  FakeCuda cuda;
  const IpcHandle handle = export_ipc(cuda.add_memory({}), 8);
  const auto forged = [&](auto&& change) {
    IpcHandle copy = handle;
    change(copy);
    EXPECT_EQ(error_of([&] { (void)IpcMapping::open(copy, DeviceId{0}); }).code(),
              ErrorCode::invalid_argument);
  };
  forged([](IpcHandle& copy) { copy.address += 8; });
  forged([](IpcHandle& copy) { copy.address = 4096; });
  forged([](IpcHandle& copy) { copy.allocation += 1; });
  forged([](IpcHandle& copy) { copy.allocation_bytes *= 2; });
  forged([](IpcHandle& copy) { copy.offset = copy.allocation_bytes; });
}

TEST(IpcMapping, RefusesAnAllocationThatIsSmallerThanItsHandleSays) {
  FakeCuda cuda;
  IpcHandle handle = from_elsewhere(export_ipc(cuda.add_memory({}), 8));
  handle.allocation_bytes *= 2;
  const Error error = error_of([&] { (void)IpcMapping::open(handle, DeviceId{1}); });
  EXPECT_EQ(error.code(), ErrorCode::protocol);
  EXPECT_EQ(cuda.opened(), 0U);
}

TEST(IpcMapping, SaysWhenThePeersMemoryIsGoneOrOutOfReach) {
  FakeCuda cuda;
  std::byte* const base = cuda.add_memory({});
  const IpcHandle handle = from_elsewhere(export_ipc(base, 8));
  cuda.peers = false;
  EXPECT_THAT(error_of([&] { (void)IpcMapping::open(handle, DeviceId{1}); }).message(),
              HasSubstr("device 1 cannot reach memory of device 0"));
  cuda.peers = true;
  cuda.remove_memory(base);
  EXPECT_THAT(error_of([&] { (void)IpcMapping::open(handle, DeviceId{1}); }).message(),
              HasSubstr("does that process still run"));
  EXPECT_EQ(cuda.opened(), 0U);
}

TEST(IpcMapping, LeaksNothingWhicheverCallFails) {
  FakeCuda cuda;
  std::byte* const base = cuda.add_memory({});
  fail_each_call(cuda, [&] { (void)IpcMapping::open(from_elsewhere(export_ipc(base, 8)), DeviceId{1}); });
  fail_each_call(cuda, [&] { (void)IpcMapping::open(export_ipc(base, 8), DeviceId{1}); });
}

}  // namespace
}  // namespace onehop
